// Sums over rows: gradients of biases.
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/unfinished.h"

namespace echelon::cuda {

void CudaOps::bias_backward(Tensor dy, Tensor dbias) {
  if (!add_fused_column_sums(dy, dbias)) not_yet();
}

}  // namespace echelon::cuda
