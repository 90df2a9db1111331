// A rank's part of a checkpoint: which values it writes, and how they come back into its memory.
#pragma once

#include "checkpoint/state/state_file.h"
#include "checkpoint/state/state_reader.h"
#include "comm/mesh.h"
#include "executor/model_part.h"

namespace echelon {

/// What the rank of `part` writes, in order. Of values that several ranks hold, each writes a share.
[[nodiscard]] std::vector<StateSlice> state_slices(const ModelPart& part);

/// Writes these slices. Nothing is gathered. The part is bound to memory, and no program is running. Throws Failure.
void save_state(const ModelPart& part, StateFileWriter& writer, Ops& ops);

/// Which states are taken from a checkpoint.
struct LoadedStates {
  bool moments = true;  // else they are zero
};

/// Fills the part's memory: weights, moments, and parameters rounded from weights. Of values that several ranks hold,
/// each reads a share and gets the others' over `host`, the mesh of the same ranks for host memory. Every rank calls
/// it. Throws the first error of StateReader::read, but only after the exchanges, in which the others need this rank.
void load_state(ModelPart& part, const StateReader& reader, const LoadedStates& states, Ops& ops, Mesh& mesh,
                Mesh& host);

}  // namespace echelon
