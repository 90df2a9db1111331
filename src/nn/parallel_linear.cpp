#include "nn/parallel_linear.h"

#include "nn/tensor_parallel.h"

#include <cmath>

namespace echelon {

std::vector<Param*> ColumnParallel::params() {
  std::vector<Param*> params;
  for (Linear& linear : linears_)
    for (Param* param : linear.params()) params.push_back(param);
  return params;
}

void ColumnParallel::forward(Context& context, Tensor x, std::span<const Tensor> ys) const {
  const Stack::Scope scope(context.workspace);
  products(context, enter(context, options_, x), ys);
}

Tensor ColumnParallel::recompute(Context& context, Tensor x, std::span<const Tensor> ys) const {
  const Tensor x_full = enter(context, options_, x);
  products(context, x_full, ys);
  return x_full;
}

void ColumnParallel::products(Context& context, Tensor x, std::span<const Tensor> ys, std::size_t first) const {
  const Stack::Scope scope(context.workspace);
  LinearOperand of_x = linears_.front().operand(context, x, Float8Order::as_is);
  for (std::size_t i = 0; i < ys.size(); ++i) {
    linears_[first + i].product(context, of_x, ys[i]);
    linears_[first + i].add_bias(context.ops, ys[i]);
  }
}

void ColumnParallel::backward_input(Context& context, std::span<const Tensor> dys, Tensor dx) const {
  const Stack::Scope scope(context.workspace);
  const Tensor partial = partial_of(context, options_, dx);
  input_gradients(context, dys, partial);
  enter_backward(context, options_, dx, partial);
}

void ColumnParallel::input_gradients(Context& context, std::span<const Tensor> dys, Tensor partial) const {
  const Stack::Scope scope(context.workspace);
  std::vector<LinearOperand> of_dys;
  for (const Tensor& dy : dys) of_dys.push_back(linears_.front().operand(context, dy, Float8Order::as_is));
  input_gradients(context, of_dys, partial);
}

void ColumnParallel::input_gradients(Context& context, std::span<LinearOperand> dys, Tensor partial) const {
  for (std::size_t i = 0; i < linears_.size(); ++i)
    linears_[i].backward_input(context, dys[i], partial, i == 0 ? Linear::Write::overwrite : Linear::Write::accumulate);
}

void ColumnParallel::backward_weight(Context& context, std::span<const Tensor> dys, Tensor x) {
  const Stack::Scope scope(context.workspace);
  weight_gradients(context, dys, x.size(0) == options_.num_tokens() ? x : enter(context, options_, x));
}

void ColumnParallel::weight_gradients(Context& context, std::span<const Tensor> dys, Tensor x, std::size_t first) {
  const Stack::Scope scope(context.workspace);
  LinearOperand of_x = linears_.front().operand(context, x, Float8Order::transposed);
  for (std::size_t i = 0; i < dys.size(); ++i) {
    LinearOperand of_dy = linears_[first + i].operand(context, dys[i], Float8Order::transposed);
    linears_[first + i].weight_backward(context, of_dy, of_x);
    linears_[first + i].bias_backward(context.ops, dys[i]);
  }
}

void ColumnParallel::weight_gradients(Context& context, std::span<LinearOperand> dys, LinearOperand& x) {
  for (std::size_t i = 0; i < dys.size(); ++i) {
    linears_[i].weight_backward(context, dys[i], x);
    linears_[i].bias_backward(context.ops, dys[i].x);
  }
}

std::vector<LinearOperand> ColumnParallel::gradient_operands(Context& context, std::span<const Tensor> dys) const {
  std::vector<LinearOperand> operands;
  for (std::size_t i = 0; i < dys.size(); ++i) operands.push_back(linears_[i].gradient_operand(context, dys[i]));
  return operands;
}

void ColumnParallel::gradients(Context& context, std::span<const Tensor> dys, Tensor x, Tensor partial) {
  const Stack::Scope scope(context.workspace);
  std::vector<LinearOperand> of_dys = gradient_operands(context, dys);
  LinearOperand of_x = linears_.front().operand(context, x, Float8Order::transposed);
  weight_gradients(context, of_dys, of_x);
  input_gradients(context, of_dys, partial);
}

// What is rounded outlives the gathered x, whose memory the partial sums take.
void ColumnParallel::backward(Context& context, std::span<const Tensor> dys, Tensor x, Tensor dx) {
  const Stack::Scope scope(context.workspace);
  std::vector<LinearOperand> of_dys = gradient_operands(context, dys);
  LinearOperand of_x = linears_.front().operand(context, Tensor(nullptr, x.dtype, {options_.num_tokens(), x.size(1)}),
                                                Float8Order::transposed);
  {
    const Stack::Scope of_weights(context.workspace);
    of_x.x = x.size(0) == options_.num_tokens() ? x : enter(context, options_, x);
    weight_gradients(context, of_dys, of_x);
  }
  const Tensor partial = partial_of(context, options_, dx);
  input_gradients(context, of_dys, partial);
  enter_backward(context, options_, dx, partial);
}

void RowParallel::forward(Context& context, Tensor x, Tensor y) const {
  const Stack::Scope scope(context.workspace);
  LinearOperand once = operand(context, x, Float8Order::as_is);
  forward(context, once, y);
}

void RowParallel::forward(Context& context, LinearOperand& x, Tensor y) const {
  const Stack::Scope scope(context.workspace);
  const Tensor partial = partial_of(context, options_, y);
  linear_.product(context, x, partial);
  sum(context, y, partial);
}

void RowParallel::sum(Context& context, Tensor y, Tensor partial) const {
  leave(context, options_, y, partial);
  linear_.add_bias(context.ops, y);
}

void RowParallel::backward_weight(Context& context, LinearOperand& dy_full, Tensor x) {
  weight_gradient(context, dy_full, x);
  bias_gradient(context, dy_full.x);
}

void RowParallel::backward_weight(Context& context, Tensor dy_full, Tensor x) {
  linear_.weight_backward(context, dy_full, x);
  bias_gradient(context, dy_full);
}

void RowParallel::weight_gradient(Context& context, LinearOperand& dy_full, Tensor x) {
  LinearOperand of_x = linear_.operand(context, x, Float8Order::transposed);
  linear_.weight_backward(context, dy_full, of_x);
}

void RowParallel::bias_gradient(Context& context, Tensor dy_full) {
  linear_.bias_backward(context.ops, local_tokens(options_, dy_full));
}

RowParallel row_parallel(const LayerOptions& options, const std::string& name, std::int64_t num_inputs, Slice columns,
                         bool has_bias) {
  const ModelSpec& model = options.model;
  Param weight = column_slice_of_matrix(options, name + ".weight", {model.hidden_size, num_inputs}, columns);
  weight.init_std = model.initializer_range / std::sqrt(2.0 * static_cast<double>(model.num_hidden_layers));
  Linear linear(options, std::move(weight));
  if (has_bias) linear.set_bias(replicated(options, name + ".bias", {model.hidden_size}));
  add_adapters(options, {&linear, 1}, ShardedSide::inputs);
  return {options, std::move(linear)};
}

}  // namespace echelon
