#include "plan/sets/pipeline_keys.h"

#include <algorithm>

namespace echelon {

/// Where memory comes first, seconds decide between layouts alone.
PlanKey PipelineKeys::of(const PlanShape& shape, const PlanPipeline& pipeline, RecomputeChain chain,
                         TensorPlacement placement) const {
  if (memory_first_)
    return {.first = static_cast<double>(bounds_->bytes().of_any_schedule({shape, pipeline, chain.back()}))};
  return {.first = bounds_->pipeline_seconds({shape, pipeline, chain.front()}, placement)};
}

const std::vector<RecomputeChain>& PipelineKeys::chains(const PlanPipeline& pipeline) {
  const std::vector<PlanRecompute>& all = space_->recomputes(pipeline);
  const auto [known, is_new] = chains_.try_emplace(&all);
  if (!is_new) return known->second;
  for (auto first = all.begin(); first != all.end();) {
    const auto end =
        std::find_if(first, all.end(), [&](const PlanRecompute& each) { return each.operations != first->operations; });
    known->second.emplace_back(first, end);
    first = end;
  }
  return known->second;
}

const PipelineKeys::Kinds& PipelineKeys::kinds(const PlanShape& shape) {
  const std::vector<PlanPipeline>& all = space_->pipelines(shape);
  const auto [known, is_new] = kinds_.try_emplace(&all);
  Kinds& kinds = known->second;
  if (!is_new) return kinds;
  std::map<PipelineKind, std::size_t> numbers;
  for (const PlanPipeline& pipeline : all) {
    kinds.of_pipelines.push_back(numbers.try_emplace(bounds_->kind_of(shape, pipeline), numbers.size()).first->second);
    for (const RecomputeChain chain : chains(pipeline))
      if (std::ranges::find(kinds.recomputed, chain.front().operations) == kinds.recomputed.end())
        kinds.recomputed.push_back(chain.front().operations);
  }
  kinds.count = numbers.size();
  return kinds;
}

}  // namespace echelon
