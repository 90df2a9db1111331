// Matmuls in which one factor has few rows: the other one is read once, from where it is (streamed_kernels.h). Every
// value has the bits that multiply() of gemm.h gives it.
#pragma once

#include "ops/cpu/gemm.h"
#include "ops/cpu/gemm_splits.h"

#include <cstdint>
#include <optional>

namespace echelon {

/// The dimension of c that may be divided among threads: all else is packed again for each part.
enum class StreamedDim : std::uint8_t { rows, columns };

/// None: the matmul is faster, or can only be done, with packed factors.
[[nodiscard]] std::optional<StreamedDim> streamed_dim(const GemmKernels& kernels, const GemmProduct& product);

/// Multiples of it start parts.
inline constexpr std::int64_t streamed_grain = 192;

/// On the calling thread. `part`: of the rows or columns of c. `next`: what it most likely multiplies next, or nullptr.
void multiply_streamed(const GemmKernels& kernels, const GemmProduct& product, GemmRange part, const GemmProduct* next);

}  // namespace echelon
