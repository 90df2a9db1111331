// Keys and values of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), between the matmul that
// expands a latent and attention, which takes keys and values of one width.
//
// N tokens, H heads of this rank; P columns of a key without positions, R rotary columns, V columns of a value;
// C = R + P, the width of a key, and V <= C.
#pragma once

#include "tensor/tensor.h"

namespace echelon {

/// k[n, h] = [rope[n] | x[n, h, 0 ... P - 1]] and v[n, h] = [x[n, h, P ... P + V - 1] | 0]: all heads share the rotary
/// columns, and values are padded to the width of keys. x [N, H, P + V], rope [N, R], k and v [N, H, C].
struct ExpandLatentsArgs {
  Tensor x, rope, k, v;
};
/// dx[n, h] = [dk[n, h, R ...] | dv[n, h, 0 ... V - 1]] and drope[n] = the sum over h of dk[n, h, 0 ... R - 1], in
/// accumulate_dtype and in the order of h. Sizes as above.
struct ExpandLatentsBackwardArgs {
  Tensor dk, dv, dx, drope;
};
/// y[n, h, c] = x[n, h, c], and 0 where x has no column c: what heads have is shortened or padded, and each is the
/// other's gradient. x [N, H, W], y [N, H, any width].
struct ResizeRowsArgs {
  Tensor x, y;
};

}  // namespace echelon
