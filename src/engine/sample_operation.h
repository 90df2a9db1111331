// An operation of a kind and size, on memory of its own: to be timed.
#pragma once

#include "ops/operation.h"
#include "tensor/stack.h"

#include <string_view>
#include <vector>

namespace echelon {

/// What is to be timed; sizes as in OpCost.
struct OperationSize {
  OpKind kind = OpKind::matmul;
  DType dtype = DType::float32;  // of the activations
  std::int64_t m = 1, n = 1, k = 1;
  bool operator==(const OperationSize&) const = default;
};

/// In the form that layers use most: with the bias, the residual and the recomputed activation that the operation can
/// take; of products y = x w^T. Its tensors come out of `memory`, filled with numbers on which nothing overflows
/// (unless the stack only measures).
[[nodiscard]] Operation sample_operation(const OperationSize& size, Stack& memory);

}  // namespace echelon
