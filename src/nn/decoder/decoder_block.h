// One decoder block with norms before its branches (Xiong et al. 2020, arXiv:2002.04745), b[0] attention and b[1] the
// MLP. The residual stream s is x, h, y:
//
//     forward     s[i + 1] = s[i] + b[i](norm[i](s[i]))
//     backward    ds[i] = ds[i + 1] + norm[i]'(b[i]'(ds[i + 1]))      ': its gradient
//
// The kernel of the next norm adds s[i], and the kernel of a norm's gradient adds ds[i + 1]. Some models have norms of
// what the branches give, in place of these norms (OLMo 2) or with them (Gemma 2), and a multiplier m (Granite):
//
//     s[i + 1] = s[i] + m post[i](b[i](...))
//
// With a parallel residual (GPT-NeoX) both branches read x, and y = x + b[0](norm[0](x)) + b[1](norm[1](x)).
#pragma once

#include "nn/decoder/branch.h"
#include "nn/decoder/rope_tables.h"
#include "nn/norm.h"

#include <array>
#include <memory>
#include <optional>
#include <string>

namespace echelon {

/// The norms' results are not saved: a backward pass recomputes them, a pass over s each. It also recomputes what
/// options.recompute.operations name.
class DecoderBlock : public Layer {
 public:
  /// Parameters "model.layers.{index}.…"; index counts over the whole model.
  DecoderBlock(const LayerOptions& options, std::int64_t index, const RopeTables& rope);

  [[nodiscard]] std::vector<Param*> params() override;

  void forward(Context& context, Tensor x, Tensor y, Stash& stash) const override;
  void backward_input(Context& context, Tensor dy, Tensor dx, Stash& stash) const override;
  void backward_weight(Context& context, Stash& stash) override;
  void backward(Context& context, Tensor dy, Tensor dx, Stash& stash) override;

  /// x -> y for new positions (nn/decoder/decode.h). y may be x.
  void decode(Context& context, Tensor x, Tensor y, const KvCache& cache, std::int64_t first_position) const;

 private:
  enum Saved : int { saved_x, saved_h, saved_output_0, saved_output_1 };  // in the stash

  struct Sublayer {
    std::optional<Norm> norm;
    std::unique_ptr<Branch> branch;
    std::optional<Norm> post_norm;
  };

  [[nodiscard]] Sublayer sublayer(std::size_t i, const std::string& name, std::unique_ptr<Branch> branch) const;
  [[nodiscard]] bool is_parallel() const { return options_.model.use_parallel_residual; }
  [[nodiscard]] double multiplier() const { return options_.model.residual_multiplier; }
  [[nodiscard]] bool drops_h() const {
    return !is_parallel() && options_.recompute.operations.contain(BlockOperation::o_proj);
  }
  /// What branch i or its norm reads: x or h.
  [[nodiscard]] Tensor stream(std::size_t i, const Stash& stash) const {
    return stash.saved(this, i == 0 || is_parallel() ? saved_x : saved_h);
  }
  /// Room for a norm's result that a branch reads, with its largest magnitude.
  [[nodiscard]] Tensor take_measured(Context& context, const Sizes& sizes) const;
  /// dx with room for the largest magnitude of dh, the gradient of branch 0's result, which is stored there.
  [[nodiscard]] Tensor measured(Context& context, Tensor dx) const;
  /// s[i]: x, or where h is in this pass; with room for the statistics of its norm.
  [[nodiscard]] Tensor place_stream(const ComputePass& pass, std::size_t i) const;
  /// All that the backward pass of branch i reads. `normed` becomes norm[i](s[i]), if this pass reads it.
  void compute(const ComputePass& pass, std::size_t i, Tensor normed) const;
  /// y = what branch i adds to the stream.
  void finish(const ComputePass& pass, std::size_t i, Tensor y) const;
  /// In a backward pass: where h was dropped, all that branch 0 computes from norm[0](x), which is returned.
  [[nodiscard]] Tensor recompute_first(const ComputePass& pass) const;
  /// In a backward pass: what the pass of branch i reads, taken in the caller's scope; for branch 1 that includes h.
  /// Returns norm[i](s[i]), which is `recomputed` where recompute_first returned it.
  [[nodiscard]] Tensor compute_again(const ComputePass& pass, std::size_t i, Tensor recomputed) const;
  /// From the gradient of what branch i adds to that of what it gives: dy itself, or in the workspace. `through` is the
  /// backward pass of the norm between them.
  template <class Through>
  [[nodiscard]] Tensor output_gradient(Context& context, std::size_t i, Tensor dy, const Through& through) const;

  LayerOptions options_;
  std::array<Sublayer, 2> sublayers_;
};

}  // namespace echelon
