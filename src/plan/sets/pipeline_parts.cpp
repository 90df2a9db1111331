#include "plan/sets/pipeline_parts.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr PlanRecompute nothing = {};

}  // namespace

PipelineParts::PipelineParts(PipelineKeys& keys, const PlanShape& shape, std::int64_t turn)
    : keys_(&keys),
      shape_(shape),
      turn_(turn),
      pipelines_(&keys.space().pipelines(shape)),
      kinds_(&keys.kinds(shape)),
      placements_(keys.bounds().costs().orders().placements(shape)),
      fitting_(kinds_->recomputed.size()),
      plain_seconds_(placements_.size()),
      same_costs_(kinds_->recomputed.size()),
      known_(kinds_->recomputed.size() * placements_.size()),
      fits_plain_(kinds_->count) {
  for (std::size_t placement = 0; placement < placements_.size(); ++placement) {
    Group group = {.placement = placement, .knows_operations = keys.memory_first()};
    if (!keys.memory_first())
      group.least = keys.bounds().recomputing_seconds(shape, {}, placements_[placement], PlanBounds::any_bytes);
    for (group.operations = 0; group.operations < kinds_->recomputed.size(); ++group.operations)
      groups_.push_back(group);
  }
}

std::int64_t PipelineParts::num_turns(PipelineKeys& keys, const PlanShape& shape) {
  return std::ssize(keys.space().pipelines(shape)) * std::ssize(keys.kinds(shape).recomputed) *
         std::ssize(keys.bounds().costs().orders().placements(shape));
}

std::vector<PipelineParts::Group>::iterator PipelineParts::first_group() {
  return std::ranges::min_element(groups_, {}, &Group::least);
}

PlanKey PipelineParts::key() const {
  if (is_first_known_) return heap_.front().key;
  double least = heap_.empty() ? no_time : heap_.front().key.first;
  for (const Group& group : groups_) least = std::min(least, group.least);
  return {.first = least};
}

void PipelineParts::find_first(double most) {
  while (!is_first_known_ && !empty() && key().first <= most) {
    const auto group = first_group();
    if (group != groups_.end() && (heap_.empty() || group->least <= heap_.front().key.first)) {
      const Group first = *group;
      if (!first.knows_operations) bound(*group);
      if (!first.knows_operations && group->least < no_time) continue;
      groups_.erase(group);
      if (first.knows_operations) add_parts(first);
    } else if (heap_.front().is_bounded) {
      is_first_known_ = true;
    } else {
      std::ranges::pop_heap(heap_, comes_later<PipelinePart>);
      if (bound(heap_.back()))
        std::ranges::push_heap(heap_, comes_later<PipelinePart>);
      else
        heap_.pop_back();
    }
  }
}

PipelinePart PipelineParts::take_first() {
  std::ranges::pop_heap(heap_, comes_later<PipelinePart>);
  const PipelinePart first = heap_.back();
  heap_.pop_back();
  const auto group = first_group();
  is_first_known_ =
      !heap_.empty() && heap_.front().is_bounded && (group == groups_.end() || group->least > heap_.front().key.first);
  return first;
}

const std::vector<PipelinePart>& PipelineParts::find_all() {
  for (const Group& group : groups_) add_parts(group);
  groups_.clear();
  std::erase_if(heap_, [&](PipelinePart& part) { return !part.is_bounded && !bound(part); });
  std::ranges::sort(heap_, {}, &PipelinePart::turn);
  return heap_;
}

void PipelineParts::bound(Group& group) const {
  group.least =
      std::max(group.least, keys_->bounds().recomputing_seconds(shape_, kinds_->recomputed[group.operations],
                                                                placements_[group.placement], keys_->most_bytes()));
  group.knows_operations = true;
}

void PipelineParts::add_parts(const Group& group) {
  const BlockOperations& operations = kinds_->recomputed[group.operations];
  const std::int64_t num_operations = std::ssize(kinds_->recomputed), num_placements = std::ssize(placements_);
  for (std::size_t i = 0; i < pipelines_->size(); ++i) {
    const PlanPipeline& pipeline = (*pipelines_)[i];
    const std::vector<RecomputeChain>& chains = keys_->chains(pipeline);
    const auto chain =
        std::ranges::find_if(chains, [&](RecomputeChain each) { return each.front().operations == operations; });
    if (chain == chains.end()) continue;
    const std::int64_t place = static_cast<std::int64_t>(i) * num_operations + (chain - chains.begin());
    PipelinePart part = {.turn = turn_ + place * num_placements + static_cast<std::int64_t>(group.placement),
                         .pipeline = &pipeline,
                         .chain = *chain,
                         .placement = placements_[group.placement],
                         .kind = kinds_->of_pipelines[i],
                         .operations = group.operations,
                         .place = group.placement};
    if (keys_->memory_first() || operations.empty()) {
      if (!bound(part)) continue;
    } else {
      part.key.first = std::max(group.least, shape_.pp == 1 ? 0 : rounding_of_bounds * plain_seconds(part));
    }
    heap_.push_back(part);
    std::ranges::push_heap(heap_, comes_later<PipelinePart>);
  }
}

bool PipelineParts::bound(PipelinePart& part) {
  part.chain = fitting(part);
  if (part.chain.empty()) return false;
  const std::size_t place = same_costs(part.operations, part.place);
  std::vector<std::optional<PlanKey>>& known = known_[part.operations * placements_.size() + place];
  if (known.empty()) known.resize(kinds_->count);
  if (!known[part.kind]) known[part.kind] = keys_->of(shape_, *part.pipeline, part.chain, part.placement);
  if (keys_->memory_first())
    part.key = *known[part.kind];
  else
    part.key.first = std::max(part.key.first, known[part.kind]->first);
  part.is_bounded = true;
  return true;
}

/// The first placement with the same costs.
std::size_t PipelineParts::same_costs(std::size_t operations, std::size_t place) {
  std::vector<std::size_t>& known = same_costs_[operations];
  while (known.size() < placements_.size()) {
    const auto costs_at = [&](std::size_t at) {
      return &keys_->bounds().layers(shape_, kinds_->recomputed[operations], placements_[at]);
    };
    std::size_t first = 0;
    while (costs_at(first) != costs_at(known.size())) ++first;
    known.push_back(first);
  }
  return known[place];
}

double PipelineParts::plain_seconds(const PipelinePart& part) {
  std::vector<double>& known = plain_seconds_[same_costs(part.operations, part.place)];
  if (known.empty()) known.resize(kinds_->count, 0);
  double& seconds = known[part.kind];
  if (seconds == 0) seconds = keys_->bounds().pipeline_seconds({shape_, *part.pipeline, nothing}, part.placement);
  return seconds;
}

/// Where no layout of a pipeline need recompute anything, all of a chain fit.
RecomputeChain PipelineParts::fitting(const PipelinePart& part) {
  std::optional<bool>& fits_plain = fits_plain_[part.kind];
  if (!fits_plain)
    fits_plain =
        keys_->chains(*part.pipeline).front().front() == nothing && keys_->may_fit({shape_, *part.pipeline, nothing});
  if (*fits_plain) return part.chain;
  std::vector<std::optional<RecomputeChain>>& known = fitting_[part.operations];
  if (known.empty()) known.resize(kinds_->count);
  std::optional<RecomputeChain>& fitting = known[part.kind];
  if (!fitting)
    fitting = from_first_fitting(part.chain, [&](const PlanRecompute& each) {
      return keys_->may_fit({shape_, *part.pipeline, each});
    });
  return *fitting;
}

}  // namespace echelon
