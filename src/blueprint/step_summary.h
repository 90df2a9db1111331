// A training step of a blueprint in figures, without a machine: what each pipeline rank holds, what it computes and
// what it sends.
#pragma once

#include "blueprint/blueprint.h"

#include <map>
#include <vector>

namespace echelon {

/// The operations of one kind in one group of ranks, as one rank of it starts them in a step.
struct TrafficSummary {
  Group group;
  int group_size = 1;
  CommKind kind = CommKind::barrier;
  std::int64_t num_calls = 0;
  std::int64_t largest_bytes = 0;  // of the full buffer
  std::int64_t sent_bytes = 0;     // in all calls, by this rank
};

/// One rank that stands for all that differ from it in other axes than pp. It is the first of its tensor and data axes,
/// which has the largest share where shares are uneven.
struct PipelineRankSummary {
  int rank = 0;
  std::int64_t num_parameters = 0;  // that it computes with, uncut by data axes
  // Each at the moment when it needs most; those of a training step.
  std::map<MemoryCategory, std::int64_t> category_bytes = {};
  std::int64_t arena_bytes = 0;     // of all at the moment when they need most together
  double flops = 0;                 // of a step
  std::int64_t boundary_bytes = 0;  // of one message between stages
  // By group and kind; groups of one rank send nothing and are left out.
  std::vector<TrafficSummary> traffic = {};

  /// ZeRO's "model states": parameters, gradients, masters and moments, without padding.
  [[nodiscard]] std::int64_t model_state_bytes() const;
};

struct StepSummary {
  std::int64_t num_parameters = 0;  // of the model
  double model_flops = 0;           // of a step over all ranks, as spec/model_spec.h counts them
  double hardware_flops = 0;        // what is computed, recomputation included
  std::vector<PipelineRankSummary> ranks = {};
};

[[nodiscard]] StepSummary summary_of(const Blueprint& blueprint);

}  // namespace echelon
