// The matmul of one rank with a weight, and its gradients. No communication.
//
//     y = x w^T + b        dx = dy w        dw += dy^T x,  db += sum of dy over tokens        w [out, in]
//
// In float8 (training.linear_dtype) x and w are rounded to e4m3 and dy to e5m2, which has a larger range; y, dx and
// dw are not.
#pragma once

#include "nn/adapter.h"
#include "nn/context.h"
#include "nn/param.h"

#include <optional>
#include <vector>

namespace echelon {

class Linear {
 public:
  Linear(const LayerOptions& options, Param weight) : weight_(std::move(weight)), is_float8_(options.is_float8) {
    weight_.is_overwritten_by_first_matmul = true;
  }

  void set_bias(Param bias) { bias_ = std::move(bias); }
  /// Its output and gradients are added to those of the weight.
  void set_adapter(Adapter adapter) { adapter_ = std::move(adapter); }
  [[nodiscard]] const Param& weight() const { return weight_; }

  [[nodiscard]] std::vector<Param*> params();

  enum class Write : std::uint8_t { overwrite, accumulate };

  /// y [N, out] = x [N, in] w^T, without the bias.
  void product(Context& context, Tensor x, Tensor y) const;
  /// y += b, if there is one.
  void add_bias(Ops& ops, Tensor y) const;
  /// dx [N, in] = dy [N, out] w, or += .
  void backward_input(Context& context, Tensor dy, Tensor dx, Write write = Write::overwrite) const;
  void weight_backward(Context& context, Tensor dy, Tensor x);
  void bias_backward(Ops& ops, Tensor dy);

 private:
  void multiply(Context& context, MatmulArgs args, OperandFormat float8_of_a) const;

  Param weight_;
  std::optional<Param> bias_;
  std::optional<Adapter> adapter_;
  bool is_float8_;
};

/// The gradient of a weight that is_overwritten_by_first_matmul += dy^T x, or = if it is the step's first.
[[nodiscard]] MatmulArgs weight_gradient(Param& weight, Tensor dy, Tensor x);

}  // namespace echelon
