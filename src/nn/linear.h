// The product of one rank with a weight, and its gradients. No communication.
//
//     y = x w^T + b        dx = dy w        dw += dy^T x,  db += sum of dy over tokens        w [out, in]
#pragma once

#include "nn/param.h"
#include "ops/ops.h"

#include <optional>
#include <vector>

namespace echelon {

class Linear {
 public:
  explicit Linear(Param weight) : weight_(std::move(weight)) { weight_.is_formed_by_product = true; }

  void set_bias(Param bias) { bias_ = std::move(bias); }

  [[nodiscard]] std::vector<Param*> params();

  enum class Write : std::uint8_t { overwrite, accumulate };

  /// y [N, out] = x [N, in] w^T, without the bias.
  void product(Ops& ops, Tensor x, Tensor y) const;
  /// y += b, if there is one.
  void add_bias(Ops& ops, Tensor y) const;
  /// dx [N, in] = dy [N, out] w, or += .
  void backward_input(Ops& ops, Tensor dy, Tensor dx, Write write = Write::overwrite) const;
  void weight_backward(Ops& ops, Tensor dy, Tensor x);
  void bias_backward(Ops& ops, Tensor dy);

 private:
  Param weight_;
  std::optional<Param> bias_;
};

/// The gradient of a weight that is_formed_by_product += dy^T x, or = if it is the step's first.
void add_product(Ops& ops, Param& weight, Tensor dy, Tensor x);

}  // namespace echelon
