// Rotary positions.
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/unfinished.h"

namespace echelon::cuda {

void CudaOps::rope(const RopeArgs&) { not_yet(); }

}  // namespace echelon::cuda
