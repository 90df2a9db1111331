// The state of units, which is kept between actions: its buffers by name.
#pragma once

#include "executor/buffers.h"
#include "executor/model_part.h"

namespace echelon {

/// The buffer of the state of unit `unit` of a stage.
[[nodiscard]] BufferKey state_key(const StateBuffer& state, int stage, int unit);

/// Bytes of a snapshot's copy of each unit, in the order of model.units(): of the last units whose copies fit in
/// `limit_bytes` (-1: of all). The others have none: they are written where they are, before their update.
[[nodiscard]] std::vector<std::int64_t> snapshot_bytes_of_units(const ModelPart& model, std::int64_t limit_bytes);

/// Gives the units of all stages their state.
void bind_state(ModelPart& model, Buffers& buffers);
/// Gives the stages their RoPE tables, whose values `ops` computes.
void bind_rope(ModelPart& model, Ops& ops, Buffers& buffers);

}  // namespace echelon
