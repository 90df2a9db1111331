// Which pipelines a shape may have, and what their blocks may recompute.
#include "plan/space/space.h"
#include "spec/config/pipeline.h"
#include "spec/stage_layout.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::string_view schedule_key = "parallelism.pipeline_parallel_schedule",
                           virtual_key = "parallelism.virtual_stages",
                           layout_key = "parallelism.pipeline_parallel_layout", recompute_key = "training.recompute",
                           recompute_method_key = "training.recompute_method",
                           recompute_layers_key = "training.recompute_num_layers";

/// Layers per stage: as even as they go; and with embedding and head counted as a layer each, where that differs.
std::vector<PipelineLayout> layouts(std::int64_t num_layers, std::int64_t num_stages) {
  std::vector<PipelineLayout> all = {{}};
  if (num_layers < num_stages || num_stages < 2) return all;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(num_stages), (num_layers + 2) / num_stages);
  const std::int64_t rest = (num_layers + 2) % num_stages;
  // What is left over goes to the middle, where neither embedding nor head is.
  for (std::int64_t i = 0; i < rest; ++i) ++counts[static_cast<std::size_t>((num_stages - rest) / 2 + i)];
  std::vector<StageLayers> even = stage_layout(num_layers, static_cast<int>(num_stages));
  PipelineLayout with_ends = {.counts = counts, .letters = {}};
  if (stage_layout(num_layers, static_cast<int>(num_stages), with_ends) != even) all.push_back(std::move(with_ends));
  return all;
}

/// On one pipeline rank the other schedules run the same passes in the same order, or split the backward pass without a
/// benefit.
bool is_for_one_rank(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::one_f_one_b || schedule == PipelineSchedule::looped_bfs;
}

}  // namespace

std::vector<BlockOperations> recomputed_sets(const ModelSpec& model) {
  using enum BlockOperation;
  std::vector<BlockOperations> sets = {{}, {core_attn}, attention_internals, {mlp}, {core_attn, mlp}, whole_block};
  if (model.mixture.shared_expert_intermediate_size > 0)
    for (const BlockOperations& without_shared : {BlockOperations{experts}, BlockOperations{core_attn, experts}})
      sets.push_back(without_shared);
  return sets;
}

const std::vector<PlanSpace::Split>& PlanSpace::splits(std::int64_t num_stages) const {
  const auto [known, is_new] = splits_.try_emplace(num_stages);
  if (!is_new) return known->second;
  const PipelineLayout& fixed = request_->base.parallelism.pipeline_parallel_layout;
  const std::int64_t num_layers = request_->base.model.num_hidden_layers, named = num_stages_of(fixed);
  if (request_->fixes(layout_key) && named != 0 && named != num_stages) return known->second;
  for (const PipelineLayout& layout :
       request_->fixes(layout_key) ? std::vector{fixed} : layouts(num_layers, num_stages)) {
    Split split = {layout, stage_layout(num_layers, static_cast<int>(num_stages), layout)};
    for (const StageLayers& stage : split.stages) split.most_layers = std::max(split.most_layers, stage.num_layers);
    known->second.push_back(std::move(split));
  }
  return known->second;
}

const std::vector<StageLayers>& PlanSpace::stages_of(std::int64_t num_stages, const PipelineLayout& layout) const {
  const std::vector<Split>& all = splits(num_stages);
  return std::find_if(all.begin(), all.end(), [&](const Split& split) { return split.layout == layout; })->stages;
}

const std::vector<PlanPipeline>& PlanSpace::pipelines(const PlanShape& shape) const {
  const auto [known, is_new] = pipelines_.try_emplace({shape.pp, shape.num_microbatches});
  if (is_new) known->second = made_pipelines(shape);
  return known->second;
}

std::vector<PlanPipeline> PlanSpace::made_pipelines(const PlanShape& shape) const {
  const ParallelConfig& fixed = request_->base.parallelism;
  const std::int64_t num_layers = request_->base.model.num_hidden_layers;
  const bool fixes_recomputation = request_->fixes(recompute_key) || request_->fixes(recompute_method_key) ||
                                   request_->fixes(recompute_layers_key) ||
                                   request_->base.training.mlp_chunk_tokens > 0;
  std::vector<PlanPipeline> all;
  for (const ScheduleEntry& entry : all_schedules()) {
    if (request_->fixes(schedule_key) && entry.kind != fixed.pipeline_parallel_schedule) continue;
    if (shape.num_microbatches < entry.microbatches_per_rank * shape.pp) continue;
    if (shape.pp == 1 && !request_->fixes(schedule_key) && !is_for_one_rank(entry.kind)) continue;
    const std::int64_t most_virtual = std::min<std::int64_t>(entry.most_virtual, (num_layers + 2) / shape.pp);
    // One microbatch through one stage goes the same way in all schedules.
    const bool is_one_pass = shape.pp * shape.num_microbatches == 1 && !request_->fixes(schedule_key) &&
                             entry.kind != PipelineSchedule::one_f_one_b;
    const std::int64_t least_virtual = std::max<std::int64_t>(entry.least_virtual, is_one_pass ? 2 : 1);
    for (std::int64_t num_virtual = least_virtual; num_virtual <= most_virtual; ++num_virtual) {
      if (!fits(virtual_key, num_virtual, fixed.virtual_stages)) continue;
      const std::int64_t num_stages = num_virtual * shape.pp;
      for (const Split& split : splits(num_stages)) {
        all.push_back({entry.kind, num_virtual, split.layout, split.most_layers});
        if (fixes_recomputation && recomputes(all.back()).empty()) all.pop_back();
      }
    }
  }
  return all;
}

const std::vector<PlanRecompute>& PlanSpace::recomputes(const PlanPipeline& pipeline) const {
  const auto [known, is_new] = recomputes_.try_emplace(pipeline.most_layers);
  std::vector<PlanRecompute>& all = known->second;
  if (!is_new) return all;
  const TrainingConfig& fixed = request_->base.training;
  const auto allowed = [&](const PlanRecompute& each) {
    const RecomputeMethod method = each.num_blocks > 0 ? RecomputeMethod::block : RecomputeMethod::uniform;
    if (fixed.mlp_chunk_tokens > 0 && (each.num_blocks > 0 || !each.operations.contain(BlockOperation::mlp)))
      return false;
    return (!request_->fixes(recompute_method_key) || method == fixed.recompute_method) &&
           fits(recompute_layers_key, each.num_blocks > 0 ? each.num_blocks : 1, fixed.recompute_num_layers);
  };
  const auto add = [&](const BlockOperations& operations) {
    for (std::int64_t num_blocks = 1; num_blocks < pipeline.most_layers && !operations.empty(); ++num_blocks)
      if (allowed({operations, num_blocks})) all.push_back({operations, num_blocks});
    if (allowed({operations, 0})) all.push_back({operations, 0});
  };
  if (request_->fixes(recompute_key)) {
    add(fixed.recompute);
  } else {
    for (const BlockOperations& operations : recomputed_sets(request_->base.model)) add(operations);
  }
  return all;
}

}  // namespace echelon
