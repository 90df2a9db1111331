// Rectangles of a matrix that together should be all of it.
#pragma once

#include "tensor/tensor_slice.h"

#include <vector>

namespace echelon {

struct MatrixPart {
  Range rows, columns;

  [[nodiscard]] std::int64_t num_elements() const { return rows.count * columns.count; }
};

/// Whether no element is in two of them, in O(n log n).
[[nodiscard]] bool are_disjoint(std::vector<MatrixPart> rectangles);

}  // namespace echelon
