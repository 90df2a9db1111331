// LayerNorm or RMSNorm over the last dim of x. A layer, except that x may have any number of rows: it normalises
// tokens, and heads.
#pragma once

#include "nn/compute_pass.h"
#include "nn/layer.h"

#include <optional>

namespace echelon {

class Norm : public Layer {
 public:
  /// `weight` and `bias` have the width of the norm; `bias` is used by LayerNorm only. The model has eps and how
  /// RMSNorm applies its gain.
  Norm(NormKind kind, const ModelSpec& model, Param weight, Param bias);

  /// The norm of hidden_size before a branch or the head. Its parameters are `name`.weight and `name`.bias.
  [[nodiscard]] static Norm of_tokens(const LayerOptions& options, const std::string& name);
  /// RMSNorm of every head of q or k (Henry et al. 2020, arXiv:2010.04245; Qwen3): all heads share `name`.weight
  /// [head_dim].
  [[nodiscard]] static Norm of_heads(const LayerOptions& options, const std::string& name);
  /// RMSNorm of all columns of q or k together (OLMo 2). `weight` has this rank's columns of `width`; the ranks of
  /// `group` have the others, and the sums over rows are sums over them.
  [[nodiscard]] static Norm of_projection(const LayerOptions& options, Param weight, std::int64_t width,
                                          std::optional<Group> group);

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
  void compute(Context& context, Tensor x, Tensor residual, Tensor y, const Statistics& statistics) const;
  /// dx alone.
  void input_gradient(Context& context, Tensor dy, Tensor dresidual, Tensor dx, const Stash& stash) const;
  /// The sums over whole rows of x y, or x y times the gain; in the workspace.
  [[nodiscard]] Tensor sums_over_ranks(Context& context, RowProductsArgs args) const;

  NormKind kind_;
  double eps_, gain_offset_;
  bool rounds_before_gain_;
  RowKind rows_ = RowKind::local;
  std::int64_t width_ = 0;  // of rows that the ranks of group_ share
  std::optional<Group> group_ = {};
  Param weight_, bias_;
};

}  // namespace echelon
