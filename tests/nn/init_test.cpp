// Initial values: the generator's published answers, independence of the layout, and the distribution.
#include "nn/init.h"

#include "base/philox.h"
#include "nn/models.h"
#include "nn/sharding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace echelon::test {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers that the authors of the paper publish with their Random123 library.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

std::vector<double> initialized(const Param& param, std::int64_t seed = 3) {
  std::vector<double> numbers(static_cast<std::size_t>(param.local_sizes().num_elements()));
  initialize(param, param.slice, seed, DType::float64, numbers.data());
  return numbers;
}

// A parameter [5, 7] of which a rank has `count` entries of `dim`.
Param slice(int dim, std::int64_t first, std::int64_t count) {
  Param param;
  param.name = "w";
  param.slice = dim < 0 ? TensorSlice({5, 7}) : TensorSlice({5, 7}, dim, {first, count});
  param.init_std = 2.0;
  return param;
}

TEST(Initialize, SlicesHaveTheNumbersOfTheWhole) {
  const std::vector<double> whole = initialized(slice(-1, 0, 0));
  for (std::int64_t first = 0; first < 5; ++first) {
    const std::vector<double> rows = initialized(slice(0, first, 2));
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t j = 0; j < 7; ++j) EXPECT_EQ(rows[i * 7 + j], first + i < 5 ? whole[(first + i) * 7 + j] : 0.0);
  }
  for (std::int64_t first = 0; first < 7; ++first) {
    const std::vector<double> columns = initialized(slice(1, first, 3));
    for (std::int64_t i = 0; i < 5; ++i)
      for (std::int64_t j = 0; j < 3; ++j)
        EXPECT_EQ(columns[i * 3 + j], first + j < 7 ? whole[i * 7 + first + j] : 0.0);
  }
}

TEST(Initialize, DependsOnTheSeedAndTheName) {
  Param param = slice(-1, 0, 0);
  const std::vector<double> numbers = initialized(param, 3);
  EXPECT_EQ(initialized(param, 3), numbers);
  EXPECT_NE(initialized(param, 4), numbers);
  param.name = "v";
  EXPECT_NE(initialized(param, 3), numbers);
}

TEST(Initialize, FillsConstantsAndLeavesPaddingZero) {
  Param param = slice(0, 4, 2);
  param.init_std = 0.0;
  param.init_value = 1.0;
  EXPECT_EQ(initialized(param), (std::vector<double>{1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0}));
}

/// By Box and Muller (1958), from the Philox block of the pair that has the index.
double normal_at(std::uint64_t stream, std::uint64_t seed, std::uint64_t index) {
  const auto half = [](std::uint64_t word, int i) { return static_cast<std::uint32_t>(word >> (32 * i)); };
  const Words words = philox4x32_10({half(index / 2, 0), half(index / 2, 1), half(stream, 0), half(stream, 1)},
                                    {half(seed, 0), half(seed, 1)});
  const auto uniform = [&](std::size_t i) {
    return std::ldexp(static_cast<double>((std::uint64_t{words[i]} << 32 | words[i + 1]) >> 11), -53);
  };
  const double radius = std::sqrt(-2 * std::log(1 - uniform(0))), angle = 2 * std::acos(-1.0) * uniform(2);
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

// Threads draw blocks of 2^20 values: across their borders, and from an odd index on, values are those of one thread.
TEST(Initialize, ThreadsDrawTheSameNumbers) {
  Param param = slice(-1, 0, 0);
  constexpr std::int64_t first = 12'345, count = (1 << 21) + 1000;
  param.slice = TensorSlice({3000, 1000}).elements({first, count});
  std::vector<float> alone(count), together(count);
  initialize(param, param.slice, 3, DType::float32, alone.data());
  initialize(param, param.slice, 3, DType::float32, together.data(), 3);
  EXPECT_EQ(alone, together);
  for (const std::int64_t border : {std::int64_t{1} << 20, std::int64_t{1} << 21})
    for (std::int64_t i = border - 3; i < border + 3; ++i)
      EXPECT_EQ(together[static_cast<std::size_t>(i)],
                static_cast<float>(2 * normal_at(stream_of(param), 3, static_cast<std::uint64_t>(first + i))));
}

TEST(Initialize, RoundsToEveryDtype) {
  const Param param = slice(-1, 0, 0);
  const std::vector<double> numbers = initialized(param);
  std::vector<float> floats(numbers.size());
  std::vector<bfloat16> halves(numbers.size());
  initialize(param, param.slice, 3, DType::float32, floats.data());
  initialize(param, param.slice, 3, DType::bfloat16, halves.data());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(floats[i], static_cast<float>(numbers[i]));
    EXPECT_NEAR(static_cast<float>(halves[i]), numbers[i], std::abs(numbers[i]) / 256.0);
  }
}

// Mean, variance, fourth moment and the correlation of neighbours, each within five standard errors.
TEST(Initialize, IsNormal) {
  Param param = slice(-1, 0, 0);
  param.slice = TensorSlice({1000, 1000});
  const std::vector<double> numbers = initialized(param);
  const double n = 1e6;
  double mean = 0, variance = 0, fourth = 0, neighbours = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double z = numbers[i] / 2.0;
    mean += z / n;
    variance += z * z / n;
    fourth += z * z * z * z / n;
    neighbours += i == 0 ? 0.0 : z * numbers[i - 1] / 2.0 / n;
  }
  EXPECT_NEAR(mean, 0.0, 5.0 / std::sqrt(n));
  EXPECT_NEAR(variance, 1.0, 5.0 * std::sqrt(2.0 / n));
  EXPECT_NEAR(fourth, 3.0, 5.0 * std::sqrt(96.0 / n));
  EXPECT_NEAR(neighbours, 0.0, 5.0 / std::sqrt(n));
}

}  // namespace
}  // namespace echelon::test
