// Rotary positions (Su et al. 2021), half-split as in Hugging Face. Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"

#include <cmath>
#include <cstdint>

namespace echelon {

/// x, y [B, T, H, C], may be the same. The first R columns of a head turn, in pairs (i, i + R/2); the others stay: then
/// y is x. Angles come from tables: cos, sin [>= T, R/2] in accumulate_dtype. Or, in place of tables, they are computed
/// for each token: its position times the frequency of the pair, in float64. Then no memory grows with the number of
/// positions.
struct RopeArgs {
  static constexpr bool leaves_amax = true;
  Tensor x, y, cos, sin;
  bool inverse = false;             // the transposed rotation, for the backward pass
  std::int64_t first_position = 0;  // of row 0 of x, in the tables
  Tensor positions = {};            // int32 [B T], none negative
  Tensor frequencies = {};          // float64 [R/2], radians per position, from 0 to 1
  double scale = 1.0;               // of the cosines and sines of these angles; tables have theirs
  double growth = 0;                // likewise, times 1 + growth log(1 + floor(position / period))
  std::int64_t period = 1;

  /// Of the cosines and sines at a position.
  [[nodiscard]] double scale_at(std::int64_t position) const {
    if (growth == 0) return scale;
    const std::int64_t whole_periods = position / period;
    return scale * (1 + growth * std::log(1.0 + static_cast<double>(whole_periods)));
  }
  [[nodiscard]] bool has_tables() const { return !positions.exists(); }
  [[nodiscard]] std::int64_t num_pairs() const { return has_tables() ? cos.size(1) : frequencies.num_elements(); }
};

}  // namespace echelon
