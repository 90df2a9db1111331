// The processor's own products of bfloat16 pairs that sum in float32, where it has them: dot products and matrix tiles.
#pragma once

#include <cstdint>

namespace echelon {

/// Returns the flops done, on the calling thread, with all operands in registers; adds to `sink`. Only where
/// there are bfloat16_kernels().
[[nodiscard]] double bfloat16_dot_products(std::int64_t repeats, float* sink);

/// Likewise by AMX, only where there are amx_kernels().
[[nodiscard]] double bfloat16_tiles(std::int64_t repeats, float* sink);

}  // namespace echelon
