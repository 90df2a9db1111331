// The cost of an operation, and helpers for the formulas of each operation.
//
// Flops: a multiply-add is two; a comparison, division, exp, log, tanh or square root counts as one. Attention counts
// only its matrix products, and of those the part that the causal mask leaves, as the papers do. Bytes: every operand
// read once and every result written once; what is added to counts twice.
#pragma once

#include "tensor/tensor.h"

namespace echelon {

/// m, n, k: of a matrix product; (B heads, visible pairs of a head, head width) of attention; else (rows, columns, 1)
/// or (elements, 1, 1).
struct OpCost {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t flops = 0;
  std::int64_t bytes = 0;
  bool operator==(const OpCost&) const = default;
};

template <class... Tensors>
[[nodiscard]] std::int64_t bytes_of(const Tensors&... tensors) {
  return (tensors.num_bytes() + ... + 0);
}
/// Of an optional argument.
[[nodiscard]] inline std::int64_t bytes_if(const Tensor& tensor) { return tensor.exists() ? tensor.num_bytes() : 0; }

/// An operation on the rows of x with so many flops per element.
[[nodiscard]] inline OpCost cost_by_rows(const Tensor& x, std::int64_t flops_per_element, std::int64_t bytes) {
  const std::int64_t elements = x.num_elements(), columns = x.size(-1);
  return {.m = columns == 0 ? 0 : elements / columns,
          .n = columns,
          .k = 1,
          .flops = flops_per_element * elements,
          .bytes = bytes};
}
[[nodiscard]] inline OpCost cost_by_elements(const Tensor& x, std::int64_t flops_per_element, std::int64_t bytes) {
  return {.m = x.num_elements(), .n = 1, .k = 1, .flops = flops_per_element * x.num_elements(), .bytes = bytes};
}
/// Of Ops::upload and download.
[[nodiscard]] inline OpCost cost_of_transfer(const Tensor& x) { return cost_by_elements(x, 0, 2 * bytes_of(x)); }

}  // namespace echelon
