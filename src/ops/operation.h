// An operation of ops/ops.h as a value, for whatever treats all operations alike: the trace, the delayed backend, the
// clock. They say once what they do with an Operation and override nothing else. A new operation gets its arguments
// into the variant, at the place of its OpKind, and a line in each list below.
#pragma once

#include "ops/cost.h"
#include "ops/op_kind.h"
#include "ops/ops.h"

#include <variant>
#include <vector>

namespace echelon {

// The arguments of operations that take theirs one by one.
struct AddBiasArgs {
  Tensor y, bias;
};
struct BiasBackwardArgs {
  Tensor dy, dbias;
};
struct AddArgs {
  Tensor out, a, b;
};
struct CopyArgs {
  Tensor out, x;
};
struct FillArgs {
  Tensor out;
  double value = 0;
};
struct ScaleArgs {
  Tensor x;
  double factor = 1;
};
struct SumOfSquaresArgs {
  Tensor x, sum;
};
struct UploadArgs {
  Tensor out;
  const void* host = nullptr;
};
struct DownloadArgs {
  void* host = nullptr;
  Tensor x;
};

/// In the order of OpKind.
using Operation =
    std::variant<MatmulArgs, AddBiasArgs, BiasBackwardArgs, AddArgs, CopyArgs, FillArgs, ScaleArgs, EmbeddingArgs,
                 EmbeddingBackwardArgs, PositionsArgs, PositionsBackwardArgs, LayerNormArgs, LayerNormBackwardInputArgs,
                 LayerNormBackwardWeightArgs, LayerNormBackwardArgs, RmsNormArgs, RmsNormBackwardInputArgs,
                 RmsNormBackwardWeightArgs, RmsNormBackwardArgs, RopeArgs, AttentionArgs, AttentionBackwardArgs,
                 MergeAttentionArgs, GeluArgs, GeluBackwardArgs, SwigluArgs, SwigluBackwardArgs, RowExpArgs,
                 RescaleSumsArgs, CrossEntropyArgs, CrossEntropyBackwardArgs, SumOfSquaresArgs, GradientFactorArgs,
                 AdamWArgs, ExpertSlotsArgs, PermuteToExpertsArgs, CombineExpertsArgs, CombineExpertsBackwardArgs,
                 GroupedMatmulArgs, GroupedMatmulBackwardWeightArgs, UploadArgs, DownloadArgs>;
static_assert(std::variant_size_v<Operation> == static_cast<std::size_t>(OpKind::download) + 1);

[[nodiscard]] inline OpKind kind_of(const Operation& operation) { return static_cast<OpKind>(operation.index()); }

/// Which numbers an operation touches.
struct Operands {
  DType dtype = DType::float32;    // of the activations
  std::vector<Tensor> reads;       // also what is added to or changed in place
  std::vector<Tensor> overwrites;  // without looking at what was there, unless it is among `reads` too
};
[[nodiscard]] Operands operands_of(const Operation& operation);

[[nodiscard]] OpCost cost(const Operation& operation);
/// As in ops/check.h.
void check(const Operation& operation);
/// Calls the operation's method.
void run(Ops& ops, const Operation& operation);

/// A backend with one entry for all operations.
class UniformOps : public Ops {
 public:
  virtual void perform(const Operation& operation) = 0;

  void matmul(const MatmulArgs& args) final { perform(args); }
  void add_bias(Tensor y, Tensor bias) final { perform(AddBiasArgs{y, bias}); }
  void bias_backward(Tensor dy, Tensor dbias) final { perform(BiasBackwardArgs{dy, dbias}); }
  void add(Tensor out, Tensor a, Tensor b) final { perform(AddArgs{out, a, b}); }
  void copy(Tensor out, Tensor x) final { perform(CopyArgs{out, x}); }
  void fill(Tensor out, double value) final { perform(FillArgs{out, value}); }
  void scale(Tensor x, double factor) final { perform(ScaleArgs{x, factor}); }
  void embedding(const EmbeddingArgs& args) final { perform(args); }
  void embedding_backward(const EmbeddingBackwardArgs& args) final { perform(args); }
  void add_positions(const PositionsArgs& args) final { perform(args); }
  void positions_backward(const PositionsBackwardArgs& args) final { perform(args); }
  void layer_norm(const LayerNormArgs& args) final { perform(args); }
  void layer_norm_backward_input(const LayerNormBackwardInputArgs& args) final { perform(args); }
  void layer_norm_backward_weight(const LayerNormBackwardWeightArgs& args) final { perform(args); }
  void layer_norm_backward(const LayerNormBackwardArgs& args) final { perform(args); }
  void rms_norm(const RmsNormArgs& args) final { perform(args); }
  void rms_norm_backward_input(const RmsNormBackwardInputArgs& args) final { perform(args); }
  void rms_norm_backward_weight(const RmsNormBackwardWeightArgs& args) final { perform(args); }
  void rms_norm_backward(const RmsNormBackwardArgs& args) final { perform(args); }
  void rope(const RopeArgs& args) final { perform(args); }
  void attention(const AttentionArgs& args) final { perform(args); }
  void attention_backward(const AttentionBackwardArgs& args) final { perform(args); }
  void merge_attention(const MergeAttentionArgs& args) final { perform(args); }
  void gelu(const GeluArgs& args) final { perform(args); }
  void gelu_backward(const GeluBackwardArgs& args) final { perform(args); }
  void swiglu(const SwigluArgs& args) final { perform(args); }
  void swiglu_backward(const SwigluBackwardArgs& args) final { perform(args); }
  void row_exp(const RowExpArgs& args) final { perform(args); }
  void rescale_sums(const RescaleSumsArgs& args) final { perform(args); }
  void cross_entropy(const CrossEntropyArgs& args) final { perform(args); }
  void cross_entropy_backward(const CrossEntropyBackwardArgs& args) final { perform(args); }
  void sum_of_squares(Tensor x, Tensor sum) final { perform(SumOfSquaresArgs{x, sum}); }
  void gradient_factor(const GradientFactorArgs& args) final { perform(args); }
  void adamw(const AdamWArgs& args) final { perform(args); }
  void expert_slots(const ExpertSlotsArgs& args) final { perform(args); }
  void permute_to_experts(const PermuteToExpertsArgs& args) final { perform(args); }
  void combine_experts(const CombineExpertsArgs& args) final { perform(args); }
  void combine_experts_backward(const CombineExpertsBackwardArgs& args) final { perform(args); }
  void grouped_matmul(const GroupedMatmulArgs& args) final { perform(args); }
  void grouped_matmul_backward_weight(const GroupedMatmulBackwardWeightArgs& args) final { perform(args); }
  void upload(Tensor out, const void* host) final { perform(UploadArgs{out, host}); }
  void download(void* host, Tensor x) final { perform(DownloadArgs{host, x}); }
};

}  // namespace echelon
