// The two matmuls of a tensor-parallel region (Shoeybi et al. 2019): the first shards its outputs over the ranks, the
// second its inputs.
//
//     column-parallel    y_i = enter(x) w_i^T + b_i            each rank has some outputs of all tokens
//     row-parallel       y   = leave(x_i w_i^T) + b            each rank's matmul is a partial sum
//
// Several column-parallel products of one x (q, k, v; gate, up) form one group: their partial dx are summed before they
// are communicated.
#pragma once

#include "nn/context.h"
#include "nn/linear.h"
#include "nn/sharding.h"

#include <span>

namespace echelon {

class ColumnParallel {
 public:
  ColumnParallel(const LayerOptions& options, std::vector<Linear> linears)
      : options_(options), linears_(std::move(linears)) {}

  [[nodiscard]] std::vector<Param*> params();

  /// ys[i] [num_tokens, outputs of matmul i] of x [num_local_tokens, in].
  void forward(Context& context, Tensor x, std::span<const Tensor> ys) const;
  /// The same in a backward pass, where backward_weight reads the gathered tokens too: returns x [num_tokens, in], in
  /// the workspace if it was gathered.
  [[nodiscard]] Tensor recompute(Context& context, Tensor x, std::span<const Tensor> ys) const;
  /// dx [num_local_tokens, in] = the sum over the matmuls and the ranks.
  void backward_input(Context& context, std::span<const Tensor> dys, Tensor dx) const;
  /// Under sequence parallelism x is gathered again, unless `recompute` returned it: saving the whole x would take tp
  /// times the memory.
  void backward_weight(Context& context, std::span<const Tensor> dys, Tensor x);
  /// Both, in this order.
  void backward(Context& context, std::span<const Tensor> dys, Tensor x, Tensor dx);
  /// The matmuls alone, of tokens that all ranks hold: some or all of num_tokens. Of the matmuls from `first` on, as
  /// many as there are ys.
  void products(Context& context, Tensor x, std::span<const Tensor> ys, std::size_t first = 0) const;
  /// partial = this rank's part of their dx.
  void input_gradients(Context& context, std::span<const Tensor> dys, Tensor partial) const;
  /// Adds theirs to the gradients of the weights and biases, likewise.
  void weight_gradients(Context& context, std::span<const Tensor> dys, Tensor x, std::size_t first = 0);
  /// Both, the weights' first.
  void gradients(Context& context, std::span<const Tensor> dys, Tensor x, Tensor partial);

 private:
  /// dys of gradients of weights and inputs.
  [[nodiscard]] std::vector<LinearOperand> gradient_operands(Context& context, std::span<const Tensor> dys) const;
  void input_gradients(Context& context, std::span<LinearOperand> dys, Tensor partial) const;
  void weight_gradients(Context& context, std::span<LinearOperand> dys, LinearOperand& x);

  LayerOptions options_;
  std::vector<Linear> linears_;
};

class RowParallel {
 public:
  RowParallel(const LayerOptions& options, Linear linear) : options_(options), linear_(std::move(linear)) {}

  [[nodiscard]] std::vector<Param*> params() { return linear_.params(); }

  /// y [num_local_tokens, out] of x [num_tokens, inputs of this rank].
  void forward(Context& context, Tensor x, Tensor y) const;
  void forward(Context& context, LinearOperand& x, Tensor y) const;
  /// Its two parts: this rank's part of y, of some or all of num_tokens, and y of the parts of all ranks and tokens.
  void product(Context& context, Tensor x, Tensor partial) const { linear_.product(context, x, partial); }
  void sum(Context& context, Tensor y, Tensor partial) const;
  [[nodiscard]] LinearOperand operand(Context& context, Tensor x, Float8Order order) const {
    return linear_.operand(context, x, order);
  }
  /// In all, dy is that of all tokens: leave_backward(dy). What they round with a LinearOperand stays in the workspace.
  [[nodiscard]] LinearOperand gradient_operand(Context& context, Tensor dy_full) const {
    return linear_.gradient_operand(context, dy_full);
  }
  void backward_input(Context& context, LinearOperand& dy_full, Tensor dx) const {
    linear_.backward_input(context, dy_full, dx);
  }
  void backward_weight(Context& context, LinearOperand& dy_full, Tensor x);
  void backward_weight(Context& context, Tensor dy_full, Tensor x);
  /// Its two parts: of the weight, of some or all of num_tokens, and of the bias.
  void weight_gradient(Context& context, LinearOperand& dy_full, Tensor x);
  void bias_gradient(Context& context, Tensor dy_full);

 private:
  LayerOptions options_;
  Linear linear_;
};

/// The matmul [hidden_size, num_inputs] that ends a branch of a decoder block; this rank has the inputs of `columns`.
/// Its initial values are smaller by sqrt(2 layers), so that the sum over all branches keeps its variance (Radford et
/// al. 2019).
[[nodiscard]] RowParallel row_parallel(const LayerOptions& options, const std::string& name, std::int64_t num_inputs,
                                       Slice columns, bool has_bias);

}  // namespace echelon
