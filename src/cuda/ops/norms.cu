// LayerNorm and RMSNorm with the residual sum before them, and their gradients.
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/unfinished.h"

namespace echelon::cuda {

void CudaOps::layer_norm(const LayerNormArgs&) { not_yet(); }
void CudaOps::layer_norm_backward_input(const LayerNormBackwardInputArgs&) { not_yet(); }
void CudaOps::layer_norm_backward_weight(const LayerNormBackwardWeightArgs&) { not_yet(); }
void CudaOps::layer_norm_backward(const LayerNormBackwardArgs&) { not_yet(); }
void CudaOps::rms_norm(const RmsNormArgs&) { not_yet(); }
void CudaOps::rms_norm_backward_input(const RmsNormBackwardInputArgs&) { not_yet(); }
void CudaOps::rms_norm_backward_weight(const RmsNormBackwardWeightArgs&) { not_yet(); }
void CudaOps::rms_norm_backward(const RmsNormBackwardArgs&) { not_yet(); }

}  // namespace echelon::cuda
