// The state of units, which is kept between actions: its buffers by name.
#pragma once

#include "executor/buffers.h"
#include "executor/model_part.h"

namespace echelon {

/// The buffer of the state of unit `unit` of a stage.
[[nodiscard]] BufferKey state_key(const StateBuffer& state, int stage, int unit);

/// Gives the units of all stages their state.
void bind_state(ModelPart& model, Buffers& buffers);

}  // namespace echelon
