#include "plan/search/expert_choices.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::int64_t most_sequences = 2;         // of a microbatch
constexpr std::int64_t most_layers_of_a_part = 2;  // of an interleaved stage

}  // namespace

bool is_expert_shape(const PlanShape& shape, const PlanRequest& request) {
  return request.machine.nodes.front().num_devices % shape.tp == 0 && shape.sequence_parallel == (shape.tp > 1) &&
         shape.micro_batch_size <= most_sequences && shape.dispatch_bound == request.base.moe.dispatch_bound;
}

std::vector<PlanPipeline> expert_pipelines(const PlanSpace& space, const PlanShape& shape) {
  std::vector<PlanPipeline> all = space.pipelines(shape);
  std::erase_if(all, [](const PlanPipeline& each) {
    const bool is_interleaved =
        each.schedule == PipelineSchedule::interleaved_one_f_one_b && each.most_layers <= most_layers_of_a_part;
    return !is_interleaved && each.schedule != PipelineSchedule::one_f_one_b;
  });
  return all;
}

std::vector<PlanData> expert_data(const PlanSpace& space, const PlanShape& shape) {
  std::vector<PlanData> all = space.data_layouts(shape);
  std::erase_if(all, [&](const PlanData& each) {
    const bool is_usual =
        each.zero_level == 1 || (each.zero_level == 3 && each.reshard == ReshardAfterForward::microbatch);
    return each.replicate > 1 || !is_usual;
  });
  return all;
}

}  // namespace echelon
