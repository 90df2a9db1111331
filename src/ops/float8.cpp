#include "ops/float8.h"

#include "ops/visit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace echelon {
namespace {

template <class T>
Float8Rounding rounding_of(const T* x, std::int64_t count, Float8 format) {
  double amax = 0;
  bool is_finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    const double magnitude = std::abs(to<double>(x[i]));
    is_finite = is_finite && std::isfinite(magnitude);
    amax = std::max(amax, magnitude);
  }
  return {format, is_finite ? float8_exponent(amax, format) : 0, is_finite};
}

template <class T>
void round_all(T* out, const T* x, std::int64_t count, const Float8Rounding& how) {
  if (!how.is_finite) return std::fill(out, out + count, to<T>(std::numeric_limits<double>::quiet_NaN()));
  const double scale = std::ldexp(1.0, how.exponent), back = std::ldexp(1.0, -how.exponent);
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = to<T>(rounded_to_float8(to<double>(x[i]) * scale, how.format) * back);
}

}  // namespace

int float8_exponent(double amax, Float8 format) {
  if (amax == 0) return 0;
  constexpr int most = 63;
  int exponent = 0;
  (void)std::frexp(format.largest / amax, &exponent);  // 2^(exponent - 1) <= largest / amax < 2^exponent
  return std::min(exponent - 1, most);
}

double rounded_to_float8(double x, Float8 format) {
  constexpr int bias = 1023, mantissa_bits = 52;
  const int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(x) >> mantissa_bits & 0x7ffU) - bias;
  const int unit = std::max(exponent, format.least_exponent) - format.mantissa_bits;
  // Added to so large a value, a double has no bits left below the unit, so the addition rounds to nearest even.
  const double large =
      std::bit_cast<double>(static_cast<std::uint64_t>(unit + mantissa_bits + bias) << mantissa_bits) * 1.5;
  return std::copysign((x + large) - large, x);
}

Float8Rounding float8_rounding_of(Tensor x, OperandFormat format) {
  Float8Rounding rounding;
  visit_float(x.dtype,
              [&](auto t) { rounding = rounding_of(x.as<decltype(t)>(), x.num_elements(), float8_of(format)); });
  return rounding;
}

void round_to_float8(Tensor out, Tensor x, OperandFormat format) {
  round_to_float8(out, x, float8_rounding_of(x, format));
}

void round_to_float8(Tensor out, Tensor x, const Float8Rounding& rounding) {
  visit_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    round_all(out.as<T>(), x.as<T>(), x.num_elements(), rounding);
  });
}

}  // namespace echelon
