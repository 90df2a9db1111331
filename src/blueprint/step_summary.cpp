#include "blueprint/step_summary.h"

#include "blueprint/padding_rows.h"
#include "spec/config/model_flops.h"

#include <algorithm>
#include <tuple>

namespace echelon {
namespace {

std::vector<TrafficSummary> traffic_of(const RankBlueprint& rank) {
  std::map<std::pair<Group, CommKind>, TrafficSummary> sums;
  const RankTrace& trace = rank.trace(ProgramKind::training);
  for (const Action& action : rank.program(ProgramKind::training))
    for (const CommRecord& record : trace.of(action).communications()) {
      if (record.group_size == 1) continue;
      TrafficSummary& sum = sums[{record.group, record.kind}];
      sum.group = record.group;
      sum.group_size = record.group_size;
      sum.kind = record.kind;
      ++sum.num_calls;
      sum.largest_bytes = std::max(sum.largest_bytes, record.num_elements * size_of(record.dtype));
      sum.sent_bytes += record.sent_bytes;
    }
  std::vector<TrafficSummary> traffic;
  for (const auto& [key, sum] : sums) traffic.push_back(sum);
  return traffic;
}

PipelineRankSummary summary_of(const RankBlueprint& plan) {
  const ModelPart& part = plan.part();
  PipelineRankSummary summary;
  summary.rank = plan.rank();
  for (const ShardedUnit* unit : part.units())
    for (const Bucket& bucket : unit->buckets()) summary.num_parameters += bucket.num_parameters_in(bucket.whole());
  const MemoryPlan memory = most_padded_memory(plan, ProgramKind::training);
  for (const MemoryCategory category : memory_categories())
    summary.category_bytes[category] = memory.peak_bytes(category);
  summary.arena_bytes = plan.arena_bytes();
  for (const Action& action : plan.program(ProgramKind::training))
    for (const OpRecord& operation : plan.trace(ProgramKind::training).of(action).operations())
      summary.flops += static_cast<double>(operation.flops);
  summary.boundary_bytes = part.boundary_sizes().num_elements() * size_of(part.options.dtype);
  summary.traffic = traffic_of(plan);
  return summary;
}

}  // namespace

std::int64_t PipelineRankSummary::model_state_bytes() const {
  std::int64_t sum = 0;
  for (const MemoryCategory category :
       {MemoryCategory::parameters, MemoryCategory::gradients, MemoryCategory::master_weights, MemoryCategory::moments})
    sum += category_bytes.at(category);
  return sum;
}

StepSummary summary_of(const Blueprint& blueprint) {
  const RunConfig& config = blueprint.config();
  const MeshShape& mesh = blueprint.mesh();
  StepSummary summary;
  summary.num_parameters = config.model.num_parameters();
  summary.model_flops = model_flops_of_step(config, 1);
  for (const RankBlueprint& rank : blueprint.pipeline_ranks()) {
    summary.ranks.push_back(summary_of(rank));
    summary.hardware_flops += summary.ranks.back().flops * mesh.num_ranks() / mesh.degree(Axis::pp);
  }
  return summary;
}

}  // namespace echelon
