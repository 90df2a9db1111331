// Initial values that do not depend on the layout: every value is a function of the seed, the parameter's global name
// and the global index.
#pragma once

#include "nn/param.h"

namespace echelon {

/// Fills a slice of the parameter: uniform in [-init_bound, init_bound), or if that is 0 normal(0, init_std), or if
/// that is 0 init_value everywhere. Padding is 0. `host_out`
/// has the slice's elements in `dtype` (float32, bfloat16, float16 or float64), rounded from float64. `num_threads`, of
/// this thread's team, draw blocks of 2^20 values at the same time: each value is a function of its index alone.
void initialize(const Param& param, const TensorSlice& slice, std::int64_t seed, DType dtype, void* host_out,
                int num_threads = 1);

}  // namespace echelon
