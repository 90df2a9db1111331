// Which kernels form attention: what each can do, behind CudaOps::attention and attention_backward.
#pragma once

#include "cuda/device/status.h"
#include "ops/ops.h"

namespace echelon::cuda {

/// Any head width, float32, float64 and bfloat16, without tensor cores. Arguments are checked.
void general_attention(const AttentionArgs& args, cudaStream_t stream);
void general_attention_backward(const AttentionBackwardArgs& args, cudaStream_t stream);

}  // namespace echelon::cuda
