// Conversion of contiguous numbers between formats, each value rounded to nearest even (a NaN stays a NaN, what is too large becomes infinite).
#pragma once

#include "tensor/dtype.h"

#include <cstdint>

namespace echelon {

/// IEEE 754 binary16, which Echelon stores and converts but does not compute in.
[[nodiscard]] float float_of_half(std::uint16_t bits);
[[nodiscard]] std::uint16_t half_of_float(float value);

/// `count` numbers of format `from` to format `to`; the two must not overlap. Throws Error for int32, which is not a weight's format.
void convert_numbers(DType from, const void* in, DType to, void* out, std::int64_t count);

}  // namespace echelon
