// Which kernels multiply which dtype in this process: by the features of the CPU, by a measurement of a millisecond
// where they do not decide, or as ECHELON_FLOAT32_PRODUCTS and ECHELON_BFLOAT16_PRODUCTS say.
#pragma once

#include "ops/cpu/gemm_kernels.h"

#include <string>

namespace echelon {

/// nullptr: OpenBLAS multiplies. Own kernels on CPUs where they were measured to be faster
/// (docs/results/performance.md), where OpenBLAS has none that can be split over threads, or as
/// ECHELON_FLOAT32_PRODUCTS=own|openblas says. There is no measurement at start: the difference is smaller than its
/// error, and bits would depend on it.
[[nodiscard]] const GemmKernels* chosen_float32_kernels();

/// Dot products of pairs where the processor has them and they do at least 1.25 times the multiplications per second of
/// float32's multiply-adds: CPUs measure close to 2 or close to 0.5, so that no two measurements decide differently.
/// ECHELON_BFLOAT16_PRODUCTS=native|widened decides instead, which ranks on different kinds of CPUs need for the same
/// bits.
[[nodiscard]] const GemmKernels& chosen_bfloat16_kernels();

/// "bfloat16 by dot products of pairs (1.97 x float32)"
[[nodiscard]] std::string describe_gemm_choice();

}  // namespace echelon
