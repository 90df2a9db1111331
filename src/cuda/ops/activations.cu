// GELU and SwiGLU, and their gradients.
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/unfinished.h"

namespace echelon::cuda {

void CudaOps::gelu(const GeluArgs&) { not_yet(); }
void CudaOps::gelu_backward(const GeluBackwardArgs&) { not_yet(); }
void CudaOps::swiglu(const SwigluArgs&) { not_yet(); }
void CudaOps::swiglu_backward(const SwigluBackwardArgs&) { not_yet(); }

}  // namespace echelon::cuda
