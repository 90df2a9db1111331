// Which matmuls, and what follows them, are one call of cuBLASLt. The rules alone, which need no GPU.
//
//     y = x w^T;     y += b                    the epilogue `bias`
//     dw += dy^T x;  db += column sums of dy   the epilogue `bias_gradient`, whose sums are then added to db
//     y = x w^T;     y += h                    y = x w^T + h, without another pass over y
//     y1 = x w1^T;   y2 = x w2^T               one batch of two, if sizes are the same (gate and up; keys and values)
//
// In float8, matmuls wait together whose operands can be rounded before the first of them: in one launch for all, after
// another one for the largest magnitudes that nothing has left.
#pragma once

#include "ops/operations/matmul.h"

#include <array>
#include <functional>
#include <vector>

namespace echelon::cuda {

/// What is fused into a matmul, without another pass over memory.
enum class Epilogue : std::uint8_t {
  none,
  bias,           // c += vector [N] in every row
  bias_gradient,  // vector [M] = the sums over k of op(a): of dw = dy^T x, the gradient of the bias of this microbatch
};

/// `count` matmuls whose operands are at equal distances in memory. `args` has the operands of the first.
struct ProductCall {
  MatmulArgs args;
  Epilogue epilogue = Epilogue::none;
  Tensor vector = {};         // of the epilogue
  Tensor addend = {};         // like c: added to the result
  std::vector<Tensor> dbias;  // what the sums of bias_gradient are added to, one for each matmul
  std::int64_t count = 1;
  std::array<std::int64_t, 3> steps = {};  // bytes from one a, b, c to the next
  std::int64_t vector_step = 0;            // likewise
};

/// An operand of float8 matmuls that the first of them rounds.
struct OperandRounding {
  Tensor x;
  OperandFormat format = OperandFormat::own;
  RoundedOperand to;

  [[nodiscard]] bool needs_amax() const { return echelon::needs_amax(x, to); }
};
/// What is rounded before a matmul, if it has any elements.
[[nodiscard]] std::vector<OperandRounding> roundings_of(const MatmulArgs& args);
/// Of calls that waited together.
[[nodiscard]] std::vector<OperandRounding> roundings_of(const std::vector<ProductCall>& calls);

/// Calls that wait for what follows. Those that wait at the same time do not depend on each other; in float8 what they
/// round does not depend on them.
class ProductCalls {
 public:
  static constexpr std::size_t most_waiting = 8, most_roundings = 2 * most_waiting;

  /// `has_algorithm`: whether the library computes such a call.
  explicit ProductCalls(std::function<bool(const ProductCall&)> has_algorithm)
      : has_algorithm_(std::move(has_algorithm)) {}

  /// Whether `args` may wait together with what does.
  [[nodiscard]] bool may_join(const MatmulArgs& args) const;
  void hold(const MatmulArgs& args) { waiting_.push_back({.args = args, .dbias = {}}); }

  /// True if the last call now includes y += bias, dbias += column sums of dy, or out = a + b.
  [[nodiscard]] bool add_bias(const Tensor& y, const Tensor& bias);
  [[nodiscard]] bool column_sums(const Tensor& dy, const Tensor& dbias);
  [[nodiscard]] bool add(const Tensor& out, const Tensor& a, const Tensor& b);

  /// What waits, which does not any more. Neighbours of equal sizes are one call.
  [[nodiscard]] std::vector<ProductCall> take();

 private:
  /// By a call that waits.
  [[nodiscard]] bool is_written(const Tensor& x) const;

  std::function<bool(const ProductCall&)> has_algorithm_;
  std::vector<ProductCall> waiting_;
};

}  // namespace echelon::cuda
