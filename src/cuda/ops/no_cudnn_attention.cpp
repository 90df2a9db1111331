// Stands in for cudnn_attention.cpp where cuDNN's headers were not found.
#include "cuda/ops/cudnn_attention.h"

#include "cuda/ops/attention_sizes.h"  // which no more than a host's compiler must be able to read, for cudnn_attention.cpp's sake

namespace echelon::cuda {

std::unique_ptr<CudnnAttention> find_cudnn_attention(const CudnnOptions& /*options*/, std::string& reason) {
  reason = "built without cuDNN";
  return nullptr;
}

}  // namespace echelon::cuda
