// 8-bit floating point (Micikevicius et al. 2022, arXiv:2209.05433): e4m3 with 3 bits of mantissa up to 448, e5m2 with
// 2 up to 57344.
//
// A float8 matmul rounds each operand with one scale per tensor: the largest power of two with which its largest value
// does not exceed the format's maximum. Such a scale changes no mantissa. So rounding does not depend on the other
// values in a rank's part of a tensor, unless a value is smaller than the largest by 2^14 (e4m3) or 2^29 (e5m2).
// Layouts that shard tensors agree with one rank.
#pragma once

#include "ops/operations/matmul.h"

namespace echelon {

struct Float8 {
  int mantissa_bits = 3;
  int least_exponent = -6;  // of a normal number
  double largest = 448;
};
[[nodiscard]] constexpr Float8 float8_of(OperandFormat format) {
  return format == OperandFormat::float8_e5m2 ? Float8{.mantissa_bits = 2, .least_exponent = -14, .largest = 57344}
                                              : Float8{};
}

/// k of the scale 2^k of a tensor whose largest number is `amax`: 0 for 0. Above 63 it would overflow where two scales
/// are multiplied, and none is.
[[nodiscard]] int float8_exponent(double amax, Float8 format);

/// x rounded to nearest even; x must not exceed the largest value.
[[nodiscard]] double rounded_to_float8(double x, Float8 format);

/// How all values of a tensor are rounded.
struct Float8Rounding {
  Float8 format;
  int exponent = 0;
  bool is_finite = true;  // else all become NaN
};
[[nodiscard]] Float8Rounding float8_rounding_of(Tensor x, OperandFormat format);

/// out = x in its own dtype, each value rounded as in a float8 matmul: NaN everywhere if one is not finite.
void round_to_float8(Tensor out, Tensor x, OperandFormat format);
/// x: a part of the tensor whose rounding it is.
void round_to_float8(Tensor out, Tensor x, const Float8Rounding& rounding);

}  // namespace echelon
