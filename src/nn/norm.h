// LayerNorm or RMSNorm over the last dim of x. A layer, except that x may have any number of rows: it normalises
// tokens, and heads.
#pragma once

#include "nn/forming.h"
#include "nn/layer.h"

namespace echelon {

class Norm : public Layer {
 public:
  /// `weight` and `bias` have the width of the norm; `bias` is used by LayerNorm only.
  Norm(NormKind kind, double eps, Param weight, Param bias);

  /// The norm of hidden_size that stands before a branch or the head: its parameters are `name`.weight and `name`.bias.
  [[nodiscard]] static Norm of_tokens(const LayerOptions& options, const std::string& name);
  /// RMSNorm of every head of q or k (Henry et al. 2020, arXiv:2010.04245; Qwen3): all heads share `name`.weight
  /// [head_dim].
  [[nodiscard]] static Norm of_heads(const LayerOptions& options, const std::string& name);

  [[nodiscard]] std::vector<Param*> params() override;

  void forward(Context& context, Tensor x, Tensor y, Stash& stash) const override;
  void backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const override;
  void backward_weight(Context& context, Stash& stash) override;
  void backward(Context& context, Tensor dy, Tensor dx, Stash& stash) override;

  /// The two halves of forward. Keeps x, and room for its statistics, which may be dropped:
  void keep(const Forming& forming, Tensor x, bool drops_statistics = false) const;
  /// forms them and y. Called once more in a backward pass it gives the same bits: a pass over x, where keeping y would
  /// cost its memory.
  void normalise(Context& context, Tensor y, const Stash& stash) const;
  /// With a residual stream around the branch that ended in x: x += residual, y = norm(x); and dx = the norm's +
  /// dresidual, which came past it (dx may be it).
  void residual_normalise(Context& context, Tensor residual, Tensor y, const Stash& stash) const;
  void residual_backward(Context& context, Tensor dy, Tensor dresidual, Tensor dx, Stash& stash);
  void residual_backward_input(Context& context, Tensor dy, Tensor dresidual, Tensor dx, Stash& stash) const;

  /// Forward without a gradient.
  void apply(Context& context, Tensor x, Tensor y) const;

 private:
  struct Statistics {
    Tensor mean, rstd;  // mean of LayerNorm only
  };
  [[nodiscard]] Statistics kept_statistics(const Stash& stash) const;
  /// x += residual if there is one, then y and the statistics.
  void compute(Ops& ops, Tensor x, Tensor residual, Tensor y, const Statistics& statistics) const;

  NormKind kind_;
  double eps_;
  Param weight_, bias_;
};

}  // namespace echelon
