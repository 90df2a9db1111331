// What of a unit a checkpoint has: of every parameter the weight that the optimizer updates, and its moments.
#pragma once

#include "optim/sharded_unit.h"
#include "tensor/state_slice.h"

namespace echelon {

/// The part of one state of one parameter that this rank owns.
struct StatePart {
  std::string_view state;
  StateRole role{};  // where it is stored; a weight in `param` if the unit has no master weights
  // Of its values outside of the unit: those of a weight are float32 or float64, whatever they are stored as.
  DType dtype{};
  std::size_t bucket = 0;
  const Segment* segment = nullptr;
  Range owned;  // of the bucket; not empty
  Range share;  // of the bucket: what of it this rank writes and reads for all that own the same; may be empty

  /// Some elements of the bucket as elements of the whole parameter.
  [[nodiscard]] StateSlice slice_of(Range range) const;
};

/// In the order in which checkpoints have them. They refer to the unit's segments.
[[nodiscard]] std::vector<StatePart> state_parts(const ShardedUnit& unit);

}  // namespace echelon
