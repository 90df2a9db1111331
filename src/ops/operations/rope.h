// Rotary positions (Su et al. 2021), half-split as in Hugging Face: pairs (i, i + C/2). Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

/// x, y [B, T, H, C], may be the same; cos, sin [>= T, C/2] in accumulate_dtype.
struct RopeArgs {
  Tensor x, y, cos, sin;
  bool inverse = false;             // the transposed rotation, for the backward pass
  std::int64_t first_position = 0;  // of row 0 of x, in the tables
};

}  // namespace echelon
