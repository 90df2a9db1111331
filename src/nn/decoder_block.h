// One decoder block with norms before its branches (Xiong et al. 2020, arXiv:2002.04745):
//
//     h = x + attention(norm(x))        y = h + mlp(norm(h))
#pragma once

#include "nn/attention.h"
#include "nn/forming.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace echelon {

/// The norms' outcomes are not kept: the backward pass forms them again, a pass over x each. It forms again, too, what
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

  /// x -> y for new positions (nn/decode.h). y may be x.
  void decode(Context& context, Tensor x, Tensor y, const KvCache& cache, std::int64_t first_position) const;

 private:
  [[nodiscard]] bool drops(BlockOperation operation) const { return options_.recompute.operations.contain(operation); }
  [[nodiscard]] Tensor place_h(const Forming& forming) const;
  /// All that attention's backward pass reads. `normed` becomes the norm of x, if this pass reads that.
  void form_attention(const Forming& forming, Tensor normed) const;
  /// In a backward pass: h, and in `normed` its norm. Where h was dropped all of attention is formed before it.
  void form_h_again(const Forming& again, Tensor normed) const;

  LayerOptions options_;
  Norm attention_norm_;
  Attention attention_;
  Norm mlp_norm_;
  Mlp mlp_;
};

}  // namespace echelon
