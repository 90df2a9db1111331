// What the kernels of attention's gradients in tensor cores share (attention_mma_backward.cu). For .cu files alone.
#pragma once

#include "cuda/ops/attention.h"
#include "cuda/ops/attention_fragments.h"

namespace echelon::cuda::fragments {

struct AttentionGradients {
  const __nv_bfloat16 *q, *k, *v, *out, *dout;
  const float* lse;
  float* delta;
  __nv_bfloat16 *dq, *dk, *dv;
  float scale, base_scale;  // base_scale: scale log2 e
  AttentionSizes sizes;
};

template <int M>
__device__ __forceinline__ void set_all(float (&factor)[M][2], float value) {
#pragma unroll
  for (int m = 0; m < M; ++m) factor[m][0] = factor[m][1] = value;
}

}  // namespace echelon::cuda::fragments
