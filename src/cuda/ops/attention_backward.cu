// Attention, backward.
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/unfinished.h"

namespace echelon::cuda {

void CudaOps::attention_backward(const AttentionBackwardArgs&) { not_yet(); }

}  // namespace echelon::cuda
