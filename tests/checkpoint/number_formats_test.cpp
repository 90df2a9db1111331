// Half precision against its definition: sign * 2^(e-15) * 1.m, and rounding against a search for the nearest.
#include "checkpoint/number_formats.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace echelon {
namespace {

double half_by_definition(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryPatternReadsAsDefinedAndBack) {
  for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const float value = float_of_half(bits);
    if ((bits & 0x7c00) != 0x7c00) {
      EXPECT_EQ(static_cast<double>(value), half_by_definition(bits));
      EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0);
      EXPECT_EQ(half_of_float(value), bits);
    } else if ((bits & 1023) == 0) {
      EXPECT_TRUE(std::isinf(value));
      EXPECT_EQ(half_of_float(value), bits);
    } else {
      EXPECT_TRUE(std::isnan(value) && std::isnan(float_of_half(half_of_float(value))));
    }
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  for (std::uint16_t low = 0; low < 0x7c00; ++low) {  // infinity stands where 65536 would
    const double a = half_by_definition(low), b = low + 1 == 0x7c00 ? 65536.0 : half_by_definition(static_cast<std::uint16_t>(low + 1));
    const auto middle = static_cast<float>((a + b) / 2);  // exact: one more bit than a half has
    const auto high = static_cast<std::uint16_t>(low + 1);
    EXPECT_EQ(half_of_float(middle), low % 2 == 0 ? low : high);
    EXPECT_EQ(half_of_float(std::nextafter(middle, 0.0F)), low);
    EXPECT_EQ(half_of_float(std::nextafter(middle, 1e9F)), high);
    EXPECT_EQ(half_of_float(-std::nextafter(middle, 1e9F)), high | 0x8000);
  }
  EXPECT_EQ(half_of_float(std::numeric_limits<float>::max()), 0x7c00);
}

TEST(ConvertNumbers, RefusesIntegers) {
  float value = 1;
  std::int32_t number = 0;
  EXPECT_THROW(convert_numbers(DType::float32, &value, DType::int32, &number, 1), Error);
  EXPECT_THROW(convert_numbers(DType::int32, &number, DType::float32, &value, 1), Error);
}

}  // namespace
}  // namespace echelon
