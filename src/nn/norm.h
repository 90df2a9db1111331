// LayerNorm or RMSNorm over the last dim of x. A layer, except that x may have any number of rows: it normalises
// tokens, and heads.
#pragma once

#include "nn/compute_pass.h"
#include "nn/layer.h"

namespace echelon {

class Norm : public Layer {
 public:
  /// `weight` and `bias` have the width of the norm; `bias` is used by LayerNorm only.
  Norm(NormKind kind, double eps, Param weight, Param bias);

  /// The norm of hidden_size before a branch or the head. Its parameters are `name`.weight and `name`.bias.
  [[nodiscard]] static Norm of_tokens(const LayerOptions& options, const std::string& name);
  /// RMSNorm of every head of q or k (Henry et al. 2020, arXiv:2010.04245; Qwen3): all heads share `name`.weight
  /// [head_dim].
  [[nodiscard]] static Norm of_heads(const LayerOptions& options, const std::string& name);

  [[nodiscard]] std::vector<Param*> params() override;

  void forward(Context& context, Tensor x, Tensor y, Stash& stash) const override;
  void backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const override;
  void backward_weight(Context& context, Stash& stash) override;
  void backward(Context& context, Tensor dy, Tensor dx, Stash& stash) override;

  /// The first half of forward: saves x, and room for its statistics, which may be dropped.
  void save(const ComputePass& pass, Tensor x, bool drops_statistics = false) const;
  /// The second half: x += residual, if there is one, then y = norm(x) and the statistics. A backward pass calls it
  /// once more for the same bits of y: a pass over x, where saving y would cost its memory.
  void normalise(Context& context, Tensor y, const Stash& stash, Tensor residual = {}) const;
  /// dx = the norm's + dresidual, the gradient that passed the branch (dx may be stored in it).
  void residual_backward(Context& context, Tensor dy, Tensor dresidual, Tensor dx, Stash& stash);
  void residual_backward_input(Context& context, Tensor dy, Tensor dresidual, Tensor dx, Stash& stash) const;

  /// Forward without a gradient.
  void apply(Context& context, Tensor x, Tensor y) const;

 private:
  enum Saved : int { saved_x, saved_mean, saved_rstd, saved_dy };  // in the stash

  struct Statistics {
    Tensor mean, rstd;  // mean of LayerNorm only
  };
  [[nodiscard]] Statistics saved_statistics(const Stash& stash) const;
  void compute(Ops& ops, Tensor x, Tensor residual, Tensor y, const Statistics& statistics) const;

  NormKind kind_;
  double eps_;
  Param weight_, bias_;
};

}  // namespace echelon
