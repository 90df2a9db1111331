// Which kernels form attention: what each can do, behind CudaOps::attention and attention_backward.
#pragma once

#include "cuda/device/status.h"
#include "ops/ops.h"

namespace echelon::cuda {

/// Any head width, float32, float64 and bfloat16, without tensor cores. Arguments are checked.
void general_attention(const AttentionArgs& args, cudaStream_t stream);
void general_attention_backward(const AttentionBackwardArgs& args, cudaStream_t stream);

/// Of bfloat16 in tensor cores, for heads of a multiple of 8 up to 256. False if it is not for these arguments, and then nothing is done.
[[nodiscard]] bool mma_attention(const AttentionArgs& args, cudaStream_t stream);
/// The same of the gradients, for heads up to 128.
[[nodiscard]] bool mma_attention_backward(const AttentionBackwardArgs& args, cudaStream_t stream);

/// The first part of either backward pass: delta, the row sums of dout * out.
void attention_delta(const AttentionBackwardArgs& args, cudaStream_t stream);

}  // namespace echelon::cuda
