// The matmul of one rank with a weight, and its gradients. No communication.
//
//     y = x w^T + b        dx = dy w        dw += dy^T x,  db += sum of dy over tokens        w [out, in]
//
// In float8 (training.linear_dtype) x and w are rounded to e4m3 and dy to e5m2, which has a larger range; y, dx and
// dw are not. Matmuls that follow each other share what they round: x of q, k and v; dy of dx and dw.
#pragma once

#include "nn/adapter.h"
#include "nn/context.h"
#include "nn/param.h"

#include <optional>
#include <vector>

namespace echelon {

/// What matmuls of linear layers read. In float8 the first of them leaves it rounded in the workspace for the others.
/// x is not written before the last of them.
struct LinearOperand {
  Tensor x;
  RoundedOperand rounded = {};
};

/// In float8: x with a place in the workspace for its largest magnitude, which what writes x leaves.
[[nodiscard]] Tensor with_amax(Context& context, const LayerOptions& options, Tensor x);

class Linear {
 public:
  Linear(const LayerOptions& options, Param weight) : weight_(std::move(weight)), is_float8_(options.is_float8) {
    weight_.is_overwritten_by_first_matmul = true;
    weight_.is_rounded = is_float8_;
  }

  void set_bias(Param bias) { bias_ = std::move(bias); }
  /// Its output and gradients are added to those of the weight.
  void set_adapter(Adapter adapter) { adapter_ = std::move(adapter); }
  [[nodiscard]] const Param& weight() const { return weight_; }

  [[nodiscard]] std::vector<Param*> params();

  enum class Write : std::uint8_t { overwrite, accumulate };

  /// x, with room in the workspace if it is rounded. Of x without data: its room.
  [[nodiscard]] LinearOperand operand(Context& context, Tensor x, Float8Order order) const;
  /// dy of both gradients.
  [[nodiscard]] LinearOperand gradient_operand(Context& context, Tensor dy) const {
    return operand(context, dy, weight_.trains ? Float8Order::both : Float8Order::as_is);
  }

  /// y [N, out] = x [N, in] w^T, without the bias. With a LinearOperand these leave a rounded weight in the workspace.
  void product(Context& context, LinearOperand& x, Tensor y) const;
  void product(Context& context, Tensor x, Tensor y) const;
  /// y += b, if there is one.
  void add_bias(Ops& ops, Tensor y) const;
  /// dx [N, in] = dy [N, out] w, or += .
  void backward_input(Context& context, LinearOperand& dy, Tensor dx, Write write = Write::overwrite) const;
  void backward_input(Context& context, Tensor dy, Tensor dx, Write write = Write::overwrite) const;
  void weight_backward(Context& context, LinearOperand& dy, LinearOperand& x);
  void weight_backward(Context& context, Tensor dy, Tensor x);
  void bias_backward(Ops& ops, Tensor dy);

 private:
  [[nodiscard]] LinearOperand weight_operand(Context& context, Float8Order order) const;
  void multiply(Context& context, MatmulArgs args, LinearOperand& a, LinearOperand& b) const;

  Param weight_;
  std::optional<Param> bias_;
  std::optional<Adapter> adapter_;
  bool is_float8_;
};

/// The gradient of a weight that is_overwritten_by_first_matmul += dy^T x, or = if it is the step's first.
[[nodiscard]] MatmulArgs weight_gradient(Param& weight, Tensor dy, Tensor x);

}  // namespace echelon
