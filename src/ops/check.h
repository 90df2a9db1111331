// What every backend asks of the arguments of an operation: sizes that belong together and formats that the contract in
// ops/ops.h allows. A violation is a bug of ours, and throws a Failure that names the operation, the tensor and its
// sizes. Looks at no data.
#pragma once

#include "ops/ops.h"

namespace echelon {

void check(const MatmulArgs& args);
void check(const EmbeddingArgs& args);
void check(const EmbeddingBackwardArgs& args);
void check(const PositionsArgs& args);
void check(const PositionsBackwardArgs& args);
void check(const LayerNormArgs& args);
void check(const LayerNormBackwardInputArgs& args);
void check(const LayerNormBackwardWeightArgs& args);
void check(const LayerNormBackwardArgs& args);
void check(const RmsNormArgs& args);
void check(const RmsNormBackwardInputArgs& args);
void check(const RmsNormBackwardWeightArgs& args);
void check(const RmsNormBackwardArgs& args);
void check(const RopeArgs& args);
void check(const AttentionArgs& args);
void check(const AttentionBackwardArgs& args);
void check(const MergeAttentionArgs& args);
void check(const GeluArgs& args);
void check(const GeluBackwardArgs& args);
void check(const SwigluArgs& args);
void check(const SwigluBackwardArgs& args);
void check(const RowExpArgs& args);
void check(const RescaleSumsArgs& args);
void check(const CrossEntropyArgs& args);
void check(const CrossEntropyBackwardArgs& args);
void check(const GradientFactorArgs& args);
void check(const AdamWArgs& args);
void check(const ExpertSlotsArgs& args);
void check(const PermuteToExpertsArgs& args);
void check(const CombineExpertsArgs& args);
void check(const CombineExpertsBackwardArgs& args);
void check(const GroupedMatmulArgs& args);
void check(const GroupedMatmulBackwardWeightArgs& args);

void check_add_bias(Tensor y_ND, Tensor bias_D);
void check_bias_backward(Tensor dy_ND, Tensor dbias_D);
void check_add(Tensor out, Tensor a, Tensor b);
void check_copy(Tensor out, Tensor x);
void check_fill(Tensor out);
void check_scale(Tensor x);
void check_sum_of_squares(Tensor x, Tensor sum);

}  // namespace echelon
