// Many matmuls of different sizes, such as those of a mixture's experts, as one job of the threads.
#pragma once

#include "ops/cpu/gemm.h"

#include <vector>

namespace echelon {

/// As multiply() of each, bit by bit.
void multiply_all(const GemmKernels& kernels, const std::vector<GemmProduct>& products, int num_threads);

}  // namespace echelon
