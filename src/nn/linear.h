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
  explicit Linear(Param weight) : weight_(std::move(weight)) {}

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

}  // namespace echelon
