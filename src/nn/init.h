// Initial values that do not depend on the layout: every number is a function of the seed, the parameter's global name
// and the global index.
#pragma once

#include "nn/param.h"

namespace echelon {

/// Fills this rank's slice: normal(0, init_std), or init_value everywhere if that is 0. Padding is 0. `host_out` has
/// local_sizes() numbers of `dtype` (float32, bfloat16, float16 or float64), rounded from float64.
void initialize(const Param& param, std::int64_t seed, DType dtype, void* host_out);

}  // namespace echelon
