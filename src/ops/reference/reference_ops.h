// The oracle: every operation as the plain loop that its formula says, for the other backends to be compared with. Slow
// on purpose.
#pragma once

#include "ops/ops.h"

#include <memory>

namespace echelon {

/// Computes at once, in float32, float64, bfloat16 or float16 (summing in float32). Holds no state, so any number of
/// threads may share one.
class ReferenceOps : public Ops {
 public:
  void matmul(const MatmulArgs& args) override;
  void add_bias(Tensor y_ND, Tensor bias_D) override;
  void bias_backward(Tensor dy_ND, Tensor dbias_D) override;
  void add(Tensor out, Tensor a, Tensor b) override;
  void copy(Tensor out, Tensor x) override;
  void fill(Tensor out, double value) override;
  void scale(Tensor x, double factor) override;
  void embedding(const EmbeddingArgs& args) override;
  void embedding_backward(const EmbeddingBackwardArgs& args) override;
  void add_positions(const PositionsArgs& args) override;
  void positions_backward(const PositionsBackwardArgs& args) override;
  void layer_norm(const LayerNormArgs& args) override;
  void layer_norm_backward_input(const LayerNormBackwardInputArgs& args) override;
  void layer_norm_backward_weight(const LayerNormBackwardWeightArgs& args) override;
  void layer_norm_backward(const LayerNormBackwardArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void rms_norm_backward_input(const RmsNormBackwardInputArgs& args) override;
  void rms_norm_backward_weight(const RmsNormBackwardWeightArgs& args) override;
  void rms_norm_backward(const RmsNormBackwardArgs& args) override;
  void rope(const RopeArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void attention_backward(const AttentionBackwardArgs& args) override;
  void merge_attention(const MergeAttentionArgs& args) override;
  void gelu(const GeluArgs& args) override;
  void gelu_backward(const GeluBackwardArgs& args) override;
  void swiglu(const SwigluArgs& args) override;
  void swiglu_backward(const SwigluBackwardArgs& args) override;
  void row_exp(const RowExpArgs& args) override;
  void rescale_sums(const RescaleSumsArgs& args) override;
  void cross_entropy(const CrossEntropyArgs& args) override;
  void cross_entropy_backward(const CrossEntropyBackwardArgs& args) override;
  void sum_of_squares(Tensor x, Tensor sum) override;
  void gradient_factor(const GradientFactorArgs& args) override;
  void adamw(const AdamWArgs& args) override;
  void expert_slots(const ExpertSlotsArgs& args) override;
  void permute_to_experts(const PermuteToExpertsArgs& args) override;
  void combine_experts(const CombineExpertsArgs& args) override;
  void combine_experts_backward(const CombineExpertsBackwardArgs& args) override;
  void grouped_matmul(const GroupedMatmulArgs& args) override;
  void grouped_matmul_backward_weight(const GroupedMatmulBackwardWeightArgs& args) override;
  void upload(Tensor out, const void* host) override;
  void download(void* host, Tensor x) override;
  void publish() override {}
};

[[nodiscard]] std::unique_ptr<Ops> make_reference_ops();

}  // namespace echelon
