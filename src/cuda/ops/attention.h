// The kernels of attention that CudaOps::compute chooses from, and what each supports.
#pragma once

#include "cuda/device/status.h"
#include "ops/operations/attention.h"

namespace echelon::cuda {

/// Any head width, float32, float64 and bfloat16, without tensor cores. Arguments are checked.
void general_attention(const AttentionArgs& args, cudaStream_t stream);
void general_attention_backward(const AttentionBackwardArgs& args, cudaStream_t stream);

/// Of bfloat16 in tensor cores, for heads of a multiple of 8 up to widest_mma_head. False if it is not for these
/// arguments, and then nothing is done. `most_shared_bytes`: that the device lets a block have.
[[nodiscard]] bool mma_attention(const AttentionArgs& args, std::int64_t most_shared_bytes, cudaStream_t stream);
[[nodiscard]] std::int64_t widest_mma_head(std::int64_t most_shared_bytes);
/// The same of the gradients.
[[nodiscard]] bool mma_attention_backward(const AttentionBackwardArgs& args, std::int64_t most_shared_bytes,
                                          cudaStream_t stream);
[[nodiscard]] std::int64_t widest_mma_head_backward(std::int64_t most_shared_bytes);

}  // namespace echelon::cuda
