#include "nn/linear.h"

#include <utility>

namespace echelon {

Tensor with_amax(Context& context, const LayerOptions& options, Tensor x) {
  return options.is_float8 ? x.with_amax(context.workspace.take(DType::float32, {1})) : x;
}

std::vector<Param*> Linear::params() {
  std::vector<Param*> params = {&weight_};
  if (bias_) params.push_back(&*bias_);
  if (adapter_)
    for (Param* param : adapter_->params()) params.push_back(param);
  return params;
}

LinearOperand Linear::operand(Context& context, Tensor x, Float8Order order) const {
  if (!is_float8_) return {x};
  return {x, {.memory = context.workspace.take(DType::int32, {float8_size(x.num_elements(), order)}), .order = order}};
}

LinearOperand Linear::weight_operand(Context& context, Float8Order order) const {
  LinearOperand w = operand(context, weight_.value, order);
  if (!weight_.amax.exists()) return w;
  w.x = w.x.with_amax(weight_.amax);
  w.rounded.finds_amax = !context.is_backward;
  return w;
}

void Linear::product(Context& context, LinearOperand& x, Tensor y) const {
  LinearOperand w = weight_operand(context, Float8Order::as_is);
  multiply(context, {.a = x.x, .b = w.x, .c = y, .transpose_b = true}, x, w);
  if (adapter_) adapter_->add_product(context, x.x, y);
}

void Linear::product(Context& context, Tensor x, Tensor y) const {
  const Stack::Scope scope(context.workspace);
  LinearOperand once = operand(context, x, Float8Order::as_is);
  product(context, once, y);
}

void Linear::add_bias(Ops& ops, Tensor y) const {
  if (bias_) ops.add_bias(y, bias_->value);
}

void Linear::backward_input(Context& context, LinearOperand& dy, Tensor dx, Write write) const {
  LinearOperand w = weight_operand(context, Float8Order::transposed);
  multiply(context, {.a = dy.x, .b = w.x, .c = dx, .accumulates = write == Write::accumulate}, dy, w);
  if (adapter_) adapter_->add_input_gradient(context, dy.x, dx);
}

void Linear::backward_input(Context& context, Tensor dy, Tensor dx, Write write) const {
  const Stack::Scope scope(context.workspace);
  LinearOperand once = operand(context, dy, Float8Order::as_is);
  backward_input(context, once, dx, write);
}

void Linear::weight_backward(Context& context, LinearOperand& dy, LinearOperand& x) {
  if (weight_.trains) multiply(context, weight_gradient(weight_, dy.x, x.x), dy, x);
  if (adapter_) adapter_->weight_backward(context, dy.x, x.x);
}

void Linear::weight_backward(Context& context, Tensor dy, Tensor x) {
  const Stack::Scope scope(context.workspace);
  LinearOperand dy_once = operand(context, dy, Float8Order::transposed),
                x_once = operand(context, x, Float8Order::transposed);
  weight_backward(context, dy_once, x_once);
}

void Linear::bias_backward(Ops& ops, Tensor dy) {
  if (bias_ && bias_->trains) ops.bias_backward(dy, bias_->grad);
}

// Only y = x w^T has no gradient among its operands.
void Linear::multiply(Context& context, MatmulArgs args, LinearOperand& a, LinearOperand& b) const {
  if (is_float8_) {
    const bool is_forward = args.transpose_b;
    args.a_format = is_forward ? OperandFormat::float8_e4m3 : OperandFormat::float8_e5m2;
    args.b_format = OperandFormat::float8_e4m3;
    args.a_rounded = a.rounded;
    args.b_rounded = b.rounded;
  }
  context.ops.matmul(args);
  a.rounded.is_made = b.rounded.is_made = true;
}

MatmulArgs weight_gradient(Param& weight, Tensor dy, Tensor x) {
  return {.a = dy, .b = x, .c = weight.grad, .transpose_a = true, .accumulates = std::exchange(weight.has_grad, true)};
}

}  // namespace echelon
