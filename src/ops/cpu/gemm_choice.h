// Which kernels multiply which format in this process: by what the processor has, by a measurement of a millisecond
// where that does not tell, or as ECHELON_FLOAT32_PRODUCTS and ECHELON_BFLOAT16_PRODUCTS say.
#pragma once

#include "ops/cpu/gemm_kernels.h"

#include <string>

namespace echelon {

/// nullptr: OpenBLAS multiplies. Own kernels on processors where they were measured to be faster
/// (docs/results/performance.md), where OpenBLAS has none that can be cut over threads, or as
/// ECHELON_FLOAT32_PRODUCTS=own|openblas says. No measurement at start: they differ by less than it would err, and bits
/// would with it.
[[nodiscard]] const GemmKernels* chosen_float32_kernels();

/// Dot products of pairs where the processor has them and they do at least 1.25 times the multiplications per second of
/// float32's multiply-adds: processors are found near 2 or near 0.5, so that no two measurements differ.
/// ECHELON_BFLOAT16_PRODUCTS=native|widened decides instead, which ranks on processors of different kinds need for the
/// same bits.
[[nodiscard]] const GemmKernels& chosen_bfloat16_kernels();

/// "bfloat16 by dot products of pairs (1.97 x float32)"
[[nodiscard]] std::string describe_gemm_choice();

}  // namespace echelon
