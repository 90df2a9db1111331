// Element by element: sums, copies, constants and multiples.
#pragma once

#include "tensor/tensor.h"

namespace echelon {

/// out = a + b; out may be a or b. If a is float32 or has 16 bits, b may be the other of the two.
struct AddArgs {
  Tensor out, a, b;
};
/// out = x, converting the dtype.
struct CopyArgs {
  Tensor out, x;
};
/// out = value everywhere.
struct FillArgs {
  Tensor out;
  double value = 0;
};
/// x *= factor.
struct ScaleArgs {
  Tensor x;
  double factor = 1;
};
/// x = cap tanh(x / cap) (Gemma Team 2024, arXiv:2408.00118).
struct SoftCapArgs {
  Tensor x;
  double cap = 1;
};
/// dx *= 1 - (y / cap)^2, with y the result of soft_cap: from its gradient to that of what it was applied to. y has
/// dx's dtype or its accumulate_dtype.
struct SoftCapBackwardArgs {
  Tensor dx, y;
  double cap = 1;
};
/// x = min(max(x, -limit), limit), with the limit in x's format. NaN stays.
struct ClipArgs {
  Tensor x;
  double limit = 1;
};
/// dx = 0 where not |x| < limit: x is what clip was applied to, or its result, so the limit itself has no gradient.
struct ClipBackwardArgs {
  Tensor dx, x;
  double limit = 1;
};

}  // namespace echelon
