// The processor's own dot products of bfloat16 pairs that sum in float32, where it has them.
#pragma once

#include <cstdint>

namespace echelon {

/// Returns the flops done, on the calling thread, with all operands in registers; adds to `sink`. Only where
/// there are bfloat16_kernels().
[[nodiscard]] double bfloat16_dot_products(std::int64_t repeats, float* sink);

}  // namespace echelon
