// Of attention by kernels that compute the queries and keys of a MaskShape alone: the results of the others.
#pragma once

#include "cuda/device/status.h"
#include "ops/operations/attention.h"

namespace echelon::cuda {

/// Queries that see nothing have out 0 and lse -inf, or dq 0; keys that are not seen have dk and dv 0. bfloat16.
void fill_unseen(const AttentionArgs& args, cudaStream_t stream);
void fill_unseen(const AttentionBackwardArgs& args, cudaStream_t stream);

}  // namespace echelon::cuda
