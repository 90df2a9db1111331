// Attention: which of its kernels form it.
#include "cuda/ops/attention.h"

#include "base/error.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/cudnn_attention.h"
#include "ops/check.h"

namespace echelon::cuda {

void CudaOps::attention(const AttentionArgs& args) {
  echelon::check(args);
  const cudaStream_t lane = stream();
  if (cudnn_ && cudnn_->attention(args, lane)) return;
  if (!mma_attention(args, lane)) general_attention(args, lane);
}

void CudaOps::attention_backward(const AttentionBackwardArgs& args) {
  echelon::check(args);
  const cudaStream_t lane = stream();
  if (cudnn_ && cudnn_->attention_backward(args, lane)) return;
  if (!mma_attention_backward(args, lane)) general_attention_backward(args, lane);
}

std::string CudaOps::attention_kernels() const {
  if (cudnn_) return fmt::format("attention by {} where it has a plan, else by our kernels", cudnn_->name());
  return fmt::format("attention by our kernels ({})", no_cudnn_);
}

}  // namespace echelon::cuda
