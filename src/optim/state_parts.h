// What of a unit a checkpoint has: of every trained parameter the weight that the optimizer updates, and its moments;
// of a frozen one its weight, unless it belongs to the base of adapters.
#pragma once

#include "optim/sharded_unit.h"
#include "tensor/state_slice.h"

namespace echelon {

/// The part of one state of one parameter that this rank owns.
struct StatePart {
  std::string_view state;
  StateRole role{};  // where it is stored; a weight in `param` if the unit has no master weights
  // Of its values outside of the unit: those of a trained weight are float32 or float64, whatever they are stored as.
  DType dtype{};
  std::size_t bucket = 0;
  const Segment* segment = nullptr;
  Range owned;  // of the bucket; not empty
  Range share;  // of the bucket: what of it this rank writes and reads for all that own the same; may be empty

  /// Some elements of the bucket as elements of the whole parameter.
  [[nodiscard]] StateSlice slice_of(Range range) const;
};

/// Neighbouring values of a unit's state that this rank writes, as they are stored, and their place in a copy of them.
struct SnapshotRun {
  StateRole role{};
  std::size_t bucket = 0;
  DType dtype{};
  Range range;  // of the bucket
  std::int64_t first_byte = 0;

  [[nodiscard]] std::int64_t num_bytes() const { return range.count * size_of(dtype); }
};

/// All that this rank writes of a unit; of master weights that are split, both halves.
[[nodiscard]] std::vector<SnapshotRun> snapshot_runs(const ShardedUnit& unit);
/// Of the copy, a multiple of alignment_bytes.
[[nodiscard]] std::int64_t num_bytes_of(const std::vector<SnapshotRun>& runs);

/// In the order in which checkpoints have them. They refer to the unit's segments.
[[nodiscard]] std::vector<StatePart> state_parts(const ShardedUnit& unit);

}  // namespace echelon
