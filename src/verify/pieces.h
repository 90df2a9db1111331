// One tensor of a layout on every rank: its gradient after reduction, or its value after a step. Also each rank's
// gradient before any reduction.
#pragma once

#include "verify/combination.h"
#include "verify/finding.h"

namespace echelon {

struct RankPiece {
  int rank = 0;
  std::vector<std::int64_t> indices = {};  // in the whole tensor
  Values values = {};
};

struct TensorPieces {
  std::vector<RankPiece> pieces;  // ascending by rank; a rank without the tensor has none
  std::vector<RankPiece> local;   // gradients before any sum over ranks
};

/// The smallest shift of the whole tensor `expected` for which nine tenths of `piece`, at `places` (indices of its
/// elements), are equal; 0 if none.
[[nodiscard]] std::int64_t shift_of(const RankPiece& piece, const std::vector<std::size_t>& places,
                                    const Values& expected, double tolerance);

/// Runs the layout again, up to `step`.
[[nodiscard]] TensorPieces pieces_of(const Case& at, const std::string& tensor, Quantity quantity, std::int64_t step);

}  // namespace echelon
