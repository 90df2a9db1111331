#include "nn/linear.h"

#include <utility>

namespace echelon {

std::vector<Param*> Linear::params() {
  std::vector<Param*> params = {&weight_};
  if (bias_) params.push_back(&*bias_);
  if (adapter_)
    for (Param* param : adapter_->params()) params.push_back(param);
  return params;
}

void Linear::product(Context& context, Tensor x, Tensor y) const {
  multiply(context, {.a = x, .b = weight_.value, .c = y, .transpose_b = true}, OperandFormat::float8_e4m3);
  if (adapter_) adapter_->add_product(context, x, y);
}

void Linear::add_bias(Ops& ops, Tensor y) const {
  if (bias_) ops.add_bias(y, bias_->value);
}

void Linear::backward_input(Context& context, Tensor dy, Tensor dx, Write write) const {
  multiply(context, {.a = dy, .b = weight_.value, .c = dx, .accumulates = write == Write::accumulate},
           OperandFormat::float8_e5m2);
  if (adapter_) adapter_->add_input_gradient(context, dy, dx);
}

void Linear::weight_backward(Context& context, Tensor dy, Tensor x) {
  if (weight_.trains) multiply(context, weight_gradient(weight_, dy, x), OperandFormat::float8_e5m2);
  if (adapter_) adapter_->weight_backward(context, dy, x);
}

void Linear::bias_backward(Ops& ops, Tensor dy) {
  if (bias_ && bias_->trains) ops.bias_backward(dy, bias_->grad);
}

void Linear::multiply(Context& context, MatmulArgs args, OperandFormat float8_of_a) const {
  const Stack::Scope scope(context.workspace);
  if (is_float8_) {
    args.a_format = float8_of_a;
    args.b_format = OperandFormat::float8_e4m3;
    args.scratch =
        context.workspace.take(DType::int32, {float8_scratch_size(args.a.num_elements(), args.b.num_elements())});
  }
  context.ops.matmul(args);
}

MatmulArgs weight_gradient(Param& weight, Tensor dy, Tensor x) {
  return {.a = dy, .b = x, .c = weight.grad, .transpose_a = true, .accumulates = std::exchange(weight.has_grad, true)};
}

}  // namespace echelon
