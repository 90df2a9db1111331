// The tensors between stages. Where two neighbours lie on one rank nothing is sent: what the one writes is what the
// other reads, in one buffer, which is called by the stage behind (its input) and the stage in front (the gradient of
// its output).
#pragma once

#include "executor/buffers.h"
#include "executor/model_part.h"

namespace echelon {

inline BufferKey stage_input(int stage, int microbatch) { return {BufferRole::stage_input, microbatch, stage}; }
inline BufferKey output_gradient(int stage, int microbatch) { return {BufferRole::output_gradient, microbatch, stage}; }

inline BufferKey stage_output(const ModelPart& part, int stage, int microbatch) {
  if (part.holds(stage + 1)) return stage_input(stage + 1, microbatch);
  return {BufferRole::stage_output, microbatch, stage};
}

inline BufferKey input_gradient(const ModelPart& part, int stage, int microbatch) {
  if (part.holds(stage - 1)) return output_gradient(stage - 1, microbatch);
  return {BufferRole::input_gradient, microbatch, stage};
}

}  // namespace echelon
