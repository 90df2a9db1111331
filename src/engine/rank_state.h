// A rank's part of a checkpoint: which values it writes, and how they come back into its memory.
#pragma once

#include "checkpoint/state/state_file.h"
#include "checkpoint/state/state_reader.h"
#include "comm/mesh.h"
#include "engine/rank_memory.h"
#include "executor/model_part.h"

namespace echelon {

/// Where the values of a slice are read.
struct StateSource {
  std::size_t unit = 0;  // of part.units()
  StateFileWriter::Values values;
};

/// The sources of the slices that the rank of `part` writes (state_slices), whose unit is bound to memory. They are the
/// values themselves, of which none may be written meanwhile, or a snapshot's copies: `copies` has one per unit, or
/// null, or is empty. They refer to `part` and `ops`. Where the values are not in host memory, sources without a copy
/// are read by the rank's own thread alone.
[[nodiscard]] std::vector<StateSource> state_sources(const ModelPart& part, Ops& ops,
                                                     const std::vector<const std::byte*>& copies = {});

/// By unit, where a snapshot's copies are; null: it has none.
[[nodiscard]] std::vector<const std::byte*> snapshot_copies(const RankMemory& memory, const ModelPart& part);

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
