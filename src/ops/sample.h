// A sample operation of a kind and size, with its own operands, for timing.
#pragma once

#include "ops/cost.h"
#include "ops/ops.h"
#include "tensor/stack.h"

#include <functional>
#include <limits>
#include <vector>

namespace echelon {

/// What is to be timed; sizes as in OpCost.
struct OperationSize {
  OpKind kind = OpKind::matmul;
  DType dtype = DType::float32;  // of the activations
  std::int64_t m = 1, n = 1, k = 1;
  bool is_weight_gradient = false;  // of matmuls, else y = x w^T
  bool operator==(const OperationSize&) const = default;
};
/// f(kind, is_weight_gradient) for each curve of a machine file (ops/trace/trace_ops.h).
template <class F>
void for_each_curve(F&& f) {
  for (int kind = 0; kind < num_op_kinds; ++kind) f(static_cast<OpKind>(kind), false);
  f(OpKind::matmul, true);
}

/// The operation in the form that layers use most: with the bias, the residual and the recomputed activation that it
/// can take.
struct Sample {
  OpCost cost;
  std::function<void(Ops&)> run;
};
/// Its operands come out of `memory`.
[[nodiscard]] Sample sample_operation(const OperationSize& size, Stack& memory);

/// The sizes at which `echelon bench` times an operation: every m with every n and every k. Without m it is not timed.
struct SampleSizes {
  std::vector<std::int64_t> m = {}, n = {1}, k = {1};
  bool has_activations = true;  // else only operands of accumulate_dtype
  // From this n on the time is in proportion to n, and an operation of this n is timed in place of a larger one.
  std::int64_t most_n = std::numeric_limits<std::int64_t>::max();
};
[[nodiscard]] SampleSizes usual_sizes(OpKind kind);
[[nodiscard]] SampleSizes usual_sizes_of_rows();
[[nodiscard]] SampleSizes usual_sizes_of_elements();

/// Takes operands out of a stack and fills them with values on which nothing overflows, unless the stack only measures.
class SampleOperands {
 public:
  SampleOperands(const OperationSize& size, Stack& memory) : size_(size), memory_(memory) {}

  [[nodiscard]] std::int64_t m() const { return size_.m; }
  [[nodiscard]] std::int64_t n() const { return size_.n; }
  [[nodiscard]] std::int64_t k() const { return size_.k; }
  [[nodiscard]] DType dtype() const { return size_.dtype; }
  [[nodiscard]] bool is_weight_gradient() const { return size_.is_weight_gradient; }

  [[nodiscard]] Tensor filled(DType dtype, Sizes sizes);
  [[nodiscard]] Tensor x(Sizes sizes) { return filled(size_.dtype, sizes); }  // activations
  [[nodiscard]] Tensor rows() { return x({size_.m, size_.n}); }
  /// Statistics, and gradients of weights.
  [[nodiscard]] Tensor sums(Sizes sizes) { return filled(accumulate_dtype(size_.dtype), sizes); }
  [[nodiscard]] Tensor of_rows() { return sums({size_.m}); }  // one for each
  [[nodiscard]] Tensor scalar() { return filled(DType::float64, {1}); }
  /// int32, with f(i) at i.
  [[nodiscard]] Tensor integers(Sizes sizes, const std::function<std::int64_t(std::int64_t)>& f);
  /// One for each row, all below `bound`, spread over them as in a text.
  [[nodiscard]] Tensor tokens(std::int64_t bound) {
    return integers({size_.m}, [bound](std::int64_t i) { return i * 7919 % bound; });
  }

 private:
  OperationSize size_;
  Stack& memory_;
};

}  // namespace echelon
