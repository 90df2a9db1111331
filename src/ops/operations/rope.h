// Rotary positions (Su et al. 2021), half-split as in Hugging Face: pairs (i, i + C/2). Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

/// x, y [B, T, H, C], may be the same. Angles come from tables: cos, sin [>= T, C/2] in accumulate_dtype. Or, in place
/// of tables, they are computed for each token: its position times the frequency of the pair, in float64. Then no
/// memory grows with the number of positions.
struct RopeArgs {
  Tensor x, y, cos, sin;
  bool inverse = false;             // the transposed rotation, for the backward pass
  std::int64_t first_position = 0;  // of row 0 of x, in the tables
  Tensor positions = {};            // int32 [B T], none negative
  Tensor frequencies = {};          // float64 [C/2], radians per position, from 0 to 1

  [[nodiscard]] bool has_tables() const { return !positions.exists(); }
};

}  // namespace echelon
