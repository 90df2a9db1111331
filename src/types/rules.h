// The rule of every operation: from the layout types of what it reads to those of what it writes, axis by axis;
// docs/types.md has them in a table. What a rule does not allow is a fault of the layers, not of the user's config.
#pragma once

#include "ops/operation.h"
#include "types/inference.h"

namespace echelon {

// products
void infer(Inference& call, const MatmulArgs& args);
void infer(Inference& call, const AddBiasArgs& args);
void infer(Inference& call, const BiasBackwardArgs& args);
// number by number
void infer(Inference& call, const AddArgs& args);
void infer(Inference& call, const CopyArgs& args);
void infer(Inference& call, const FillArgs& args);
void infer(Inference& call, const ScaleArgs& args);
void infer(Inference& call, const GeluArgs& args);
void infer(Inference& call, const GeluBackwardArgs& args);
void infer(Inference& call, const SwigluArgs& args);
void infer(Inference& call, const SwigluBackwardArgs& args);
// of experts
void infer(Inference& call, const ExpertSlotsArgs& args);
void infer(Inference& call, const PermuteToExpertsArgs& args);
void infer(Inference& call, const CombineExpertsArgs& args);
void infer(Inference& call, const CombineExpertsBackwardArgs& args);
void infer(Inference& call, const GroupedMatmulArgs& args);
void infer(Inference& call, const GroupedMatmulBackwardWeightArgs& args);
// row by row
void infer(Inference& call, const LayerNormArgs& args);
void infer(Inference& call, const LayerNormBackwardInputArgs& args);
void infer(Inference& call, const LayerNormBackwardWeightArgs& args);
void infer(Inference& call, const LayerNormBackwardArgs& args);
void infer(Inference& call, const RmsNormArgs& args);
void infer(Inference& call, const RmsNormBackwardInputArgs& args);
void infer(Inference& call, const RmsNormBackwardWeightArgs& args);
void infer(Inference& call, const RmsNormBackwardArgs& args);
// of positions
void infer(Inference& call, const RopeArgs& args);
void infer(Inference& call, const AttentionArgs& args);
void infer(Inference& call, const AttentionBackwardArgs& args);
void infer(Inference& call, const MergeAttentionArgs& args);
// of the vocabulary
void infer(Inference& call, const EmbeddingArgs& args);
void infer(Inference& call, const EmbeddingBackwardArgs& args);
void infer(Inference& call, const PositionsArgs& args);
void infer(Inference& call, const PositionsBackwardArgs& args);
void infer(Inference& call, const RowExpArgs& args);
void infer(Inference& call, const RescaleSumsArgs& args);
void infer(Inference& call, const CrossEntropyArgs& args);
void infer(Inference& call, const CrossEntropyBackwardArgs& args);
// of a step
void infer(Inference& call, const SumOfSquaresArgs& args);
void infer(Inference& call, const GradientFactorArgs& args);
void infer(Inference& call, const AdamWArgs& args);
void infer(Inference& call, const UploadArgs& args);
void infer(Inference& call, const DownloadArgs& args);

/// One factor of a product, with the dims that it sums over (inner) and keeps (outer).
struct MatrixFactor {
  const Operand& x;
  int inner = 0, outer = 1;

  [[nodiscard]] bool is_cut(TypeAxis axis, int dim) const;
};
/// The layout of c = a b: c's last dim is b's outer one, the dim before it a's.
[[nodiscard]] AxisLayout product(const Inference& call, TypeAxis axis, const MatrixFactor& a, const MatrixFactor& b,
                                 const Tensor& c);

/// The layout of a tensor with rows of `to` elements made row by row from one with rows of `from`.
[[nodiscard]] AxisLayout with_rows_of(AxisLayout layout, std::int64_t from, std::int64_t to);
/// That of a sum over the rows of x, along one axis: whole rows that lie on different ranks leave addends.
[[nodiscard]] AxisLayout sum_of_rows(Inference& call, const Operand& x, TypeAxis axis);

}  // namespace echelon
