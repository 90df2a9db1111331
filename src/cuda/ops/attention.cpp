// Attention: which of its kernels form it.
#include "cuda/ops/attention.h"

#include "cuda/ops/cuda_ops.h"
#include "ops/check.h"

namespace echelon::cuda {

void CudaOps::attention(const AttentionArgs& args) {
  echelon::check(args);
  if (!mma_attention(args, stream())) general_attention(args, stream());
}

void CudaOps::attention_backward(const AttentionBackwardArgs& args) {
  echelon::check(args);
  if (!mma_attention_backward(args, stream())) general_attention_backward(args, stream());
}

}  // namespace echelon::cuda
