// Attention, forward.
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/unfinished.h"

namespace echelon::cuda {

void CudaOps::attention(const AttentionArgs&) { not_yet(); }

}  // namespace echelon::cuda
