// What rounding to a bfloat16 loses. At random: what it may give, its mean, and where its bits come from. To the
// nearest: what is kept of the rest.
#include "ops/rounding_noise.h"
#include "tensor/remainder.h"

#include "ops/visit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace echelon {
namespace {

float rounded(float x, std::uint32_t random) {
  bfloat16 result;
  result.bits = stochastic_bfloat16(x, random);
  return static_cast<float>(result);
}

// Over all 2^16 values of the noise the mean is the number itself, to the last bit: rounding keeps what is lost in
// every single number.
TEST(StochasticRounding, KeepsTheMean) {
  for (const float x : {1.0F + 0x1p-10F, -3.3F, 1e-20F, 7.0e30F, 0x1p-130F + 0x1p-140F}) {
    double sum = 0;
    const float down = rounded(x, 0), up = rounded(x, 0xffff);
    for (std::uint32_t random = 0; random < 1U << 16; ++random) {
      const float result = rounded(x, random);
      EXPECT_TRUE(result == down || result == up);
      sum += static_cast<double>(result);
    }
    EXPECT_LE(std::abs(down), std::abs(x));
    EXPECT_GE(std::abs(up), std::abs(x));
    EXPECT_EQ(sum / (1U << 16), static_cast<double>(x));
  }
}

TEST(StochasticRounding, LeavesWhatIsThereAlready) {
  for (const float x : {0.0F, -0.0F, 1.0F, -2.5F, 0x1p-133F, std::numeric_limits<float>::infinity(),
                        -std::numeric_limits<float>::infinity()})
    for (const std::uint32_t random : {0U, 0xffffU, 0xffffffffU}) {
      EXPECT_EQ(rounded(x, random), x);
      EXPECT_EQ(std::signbit(rounded(x, random)), std::signbit(x));
    }
  for (const std::uint32_t bits : {0x7f800001U, 0xffffffffU, 0x7fc00000U})
    for (const std::uint32_t random : {0U, 0xffffU})
      EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(bits), random)));
}

// Of every float32 with some upper halves: zero, subnormal and normal numbers, even and odd ones, the largest,
// infinity.
TEST(Remainder, BringsEveryFloatBack) {
  for (const std::uint32_t upper :
       {0x0000U, 0x8000U, 0x0001U, 0x0080U, 0x3f80U, 0x3f81U, 0xbf80U, 0x7f7fU, 0xff7fU, 0x7f80U})
    for (std::uint32_t lower = 0; lower < (upper == 0x7f80U ? 1U : 1U << 16); ++lower) {
      const auto x = std::bit_cast<float>(upper << 16 | lower);
      const SplitFloat parts = split(x);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(joined(parts)), upper << 16 | lower);
      const bool is_halfway = lower == 0x8000U;
      ASSERT_EQ(parts.upper, is_halfway ? upper + 1 : bfloat16(x).bits);
    }
  for (const std::uint32_t bits : {0x7f800001U, 0x7fffffffU, 0xffffffffU}) {
    const SplitFloat parts = split(std::bit_cast<float>(bits));
    bfloat16 param;
    param.bits = parts.upper;
    EXPECT_TRUE(std::isnan(static_cast<float>(param)) && std::isnan(joined(parts)));
  }
}

TEST(RoundingNoise, IsTheWholeParametersInAnySlice) {
  constexpr std::int64_t C = 10;
  const TensorSlice rows({20, C}, 0, {2, 18}), columns({20, C}, 1, {3, 4});
  const RoundingNoise whole = {.stream = 11, .key = 12},
                      flat = {.stream = 11, .key = 12, .slice = rows.elements({3, 40})},
                      columns_from_7 = {.stream = 11, .key = 12, .slice = columns.elements({7, 40})};
  for (std::int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(noise_word(flat, i), noise_word(whole, 23 + i));
    const std::int64_t local = 7 + i;
    EXPECT_EQ(noise_word(columns_from_7, i), noise_word(whole, local / 4 * C + 3 + local % 4));
  }
}

// Five standard deviations of the mean of uniform numbers; and other words for another element, parameter, step and
// moment.
TEST(RoundingNoise, IsUniformAndUncorrelated) {
  constexpr std::int64_t count = 20'000;
  const RoundingNoise noise = {.stream = 1, .key = 1}, next_step = {.stream = 1, .key = 1 + (std::uint64_t{1} << 32)},
                      other = {.stream = 2, .key = 1};
  const auto half = [](std::uint32_t word) { return (static_cast<double>(word & 0xffffU) + 0.5) / 65536 - 0.5; };
  double mean = 0, with_next = 0, with_other = 0, with_step = 0, with_v = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t word = noise_word(noise, i);
    const double x = half(word);
    mean += x / count;
    with_next += x * half(noise_word(noise, i + 1)) / count;
    with_other += x * half(noise_word(other, i)) / count;
    with_step += x * half(noise_word(next_step, i)) / count;
    with_v += x * half(word >> 16) / count;
  }
  EXPECT_LT(std::abs(mean), 5 * std::sqrt(1.0 / 12 / count));
  for (const double product : {with_next, with_other, with_step, with_v})
    EXPECT_LT(std::abs(product), 5 * (1.0 / 12) / std::sqrt(count));
}

}  // namespace
}  // namespace echelon
