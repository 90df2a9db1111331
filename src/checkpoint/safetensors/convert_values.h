// Converts contiguous values between formats with rounding to nearest even. NaN stays NaN; overflow gives infinity.
#pragma once

#include "tensor/dtype.h"

#include <cstdint>

namespace echelon {

/// Converts `count` values of format `from` to format `to`; the two must not overlap. Throws Error for int32, which is
/// not a weight's format.
void convert_values(DType from, const void* in, DType to, void* out, std::int64_t count);

/// The index of the first NaN or infinity; `count` if there is none. Throws Error for integers.
[[nodiscard]] std::int64_t first_not_finite(DType dtype, const void* values, std::int64_t count);

}  // namespace echelon
