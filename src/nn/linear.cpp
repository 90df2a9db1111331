#include "nn/linear.h"

#include <utility>

namespace echelon {

std::vector<Param*> Linear::params() {
  std::vector<Param*> params = {&weight_};
  if (bias_) params.push_back(&*bias_);
  return params;
}

void Linear::product(Ops& ops, Tensor x, Tensor y) const { ops.matmul({.a = x, .b = weight_.value, .c = y, .transpose_b = true}); }

void Linear::add_bias(Ops& ops, Tensor y) const {
  if (bias_) ops.add_bias(y, bias_->value);
}

void Linear::backward_input(Ops& ops, Tensor dy, Tensor dx, Write write) const {
  ops.matmul({.a = dy, .b = weight_.value, .c = dx, .accumulates = write == Write::accumulate});
}

void Linear::weight_backward(Ops& ops, Tensor dy, Tensor x) { add_product(ops, weight_, dy, x); }

void Linear::bias_backward(Ops& ops, Tensor dy) {
  if (bias_) ops.bias_backward(dy, bias_->grad);
}

void add_product(Ops& ops, Param& weight, Tensor dy, Tensor x) {
  ops.matmul({.a = dy, .b = x, .c = weight.grad, .transpose_a = true, .accumulates = std::exchange(weight.has_grad, true)});
}

}  // namespace echelon
