// The tensors between stages. If two neighbouring stages are on one rank, nothing is sent: one writes the buffer that
// the other reads. It is named after the later stage (its input) or the earlier stage (the gradient of its output).
#pragma once

#include "executor/buffers.h"

#include <vector>

namespace echelon {

inline BufferKey stage_input(int stage, int microbatch) { return {BufferRole::stage_input, microbatch, stage}; }
inline BufferKey output_gradient(int stage, int microbatch) { return {BufferRole::output_gradient, microbatch, stage}; }

/// `rank_of_stage`: of all stages. False for stages beyond the ends.
inline bool is_on_rank_of(const std::vector<int>& rank_of_stage, int stage, int neighbor) {
  return neighbor >= 0 && neighbor < static_cast<int>(rank_of_stage.size()) &&
         rank_of_stage[static_cast<std::size_t>(neighbor)] == rank_of_stage[static_cast<std::size_t>(stage)];
}

inline BufferKey stage_output(const std::vector<int>& rank_of_stage, int stage, int microbatch) {
  if (is_on_rank_of(rank_of_stage, stage, stage + 1)) return stage_input(stage + 1, microbatch);
  return {BufferRole::stage_output, microbatch, stage};
}

inline BufferKey input_gradient(const std::vector<int>& rank_of_stage, int stage, int microbatch) {
  if (is_on_rank_of(rank_of_stage, stage, stage - 1)) return output_gradient(stage - 1, microbatch);
  return {BufferRole::input_gradient, microbatch, stage};
}

}  // namespace echelon
