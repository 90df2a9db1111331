// Rows of tokens and parts of heads in the order in which context parallelism sends and attends to them (Jacobs et al.
// 2023, DeepSpeed Ulysses, arXiv:2309.14509).
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

/// y[j, n] = x[n, j / copies]: the heads of each token as blocks, one for each receiver; `copies` receivers in a row
/// get the same heads. x [N, P, W], y [P copies, N, W].
struct SplitHeadsArgs {
  Tensor x, y;
  std::int64_t copies = 1;
};
/// y[n, p] = sum over r < copies of x[p copies + r, n], in accumulate_dtype and in the order of r: the inverse of
/// split_heads, and its gradient. x [P copies, N, W], y [N, P, W].
struct JoinHeadsArgs {
  Tensor x, y;
  std::int64_t copies = 1;
};
/// y[i] = x[index[i]], and zeros where index[i] is -1. x [M, W], index int32 [N], y [N, W].
struct GatherRowsArgs {
  Tensor x, index, y;
};

}  // namespace echelon
