// One tensor of a layout, as every rank has it at one moment: its gradient when it is reduced, or its value after a
// step; and what each rank's backward pass had left in the gradient before anybody was asked.
#pragma once

#include "verify/combination.h"
#include "verify/finding.h"

namespace echelon {

struct RankPiece {
  int rank = 0;
  std::vector<std::int64_t> indices = {};  // in the whole tensor
  Numbers numbers = {};
};

struct TensorPieces {
  std::vector<RankPiece> pieces;  // ascending by rank; a rank without the tensor has none
  std::vector<RankPiece> local;   // gradients before any sum over ranks
};

/// By how many elements the whole tensor `expected` must be moved so that nine tenths of `piece`, at `places` (of its
/// numbers), are it; 0: by none. The smallest distance is found first.
[[nodiscard]] std::int64_t shift_of(const RankPiece& piece, const std::vector<std::size_t>& places,
                                    const Numbers& expected, double tolerance);

/// Runs the layout once more, up to `step`.
[[nodiscard]] TensorPieces pieces_of(const Case& at, const std::string& tensor, Quantity quantity, std::int64_t step);

}  // namespace echelon
