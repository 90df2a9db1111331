// Number formats and sums of the transports: every binary16 against the compiler's own, NaN in a maximum, overflow of
// int32.
#include "comm/sum.h"

#include "comm/numbers.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace echelon {
namespace {

TEST(Float16, WidensAndRoundsLikeTheCompiler) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    float16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto expected = static_cast<float>(std::bit_cast<conformance::Binary16>(half.bits)),
               value = static_cast<float>(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(static_cast<float>(float16(value)))) << bits;
      continue;
    }
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(expected)) << bits;
    // The number itself, the ties around it, and what lies beside the ties.
    const float next = static_cast<float>(std::bit_cast<conformance::Binary16>(static_cast<std::uint16_t>(bits + 1))),
                tie = value + (next - value) / 2;
    for (const float x : {value, tie, std::nextafter(tie, 1e9F), std::nextafter(tie, -1e9F)}) {
      if (std::isnan(x)) continue;
      EXPECT_EQ(float16(x).bits, std::bit_cast<std::uint16_t>(static_cast<conformance::Binary16>(x))) << x;
    }
  }
  for (const float x : {65504.0F, 65519.996F, 65520.0F, 1e10F, std::numeric_limits<float>::infinity(), 1e-8F, 0x1p-25F,
                        0x1.000002p-25F, -0.0F})
    EXPECT_EQ(float16(x).bits, std::bit_cast<std::uint16_t>(static_cast<conformance::Binary16>(x))) << x;
}

template <class T>
T reduced(ReduceOp op, DType dtype, const std::vector<T>& x) {
  std::vector<const std::byte*> in;
  for (const T& number : x) in.push_back(reinterpret_cast<const std::byte*>(&number));
  T result;
  std::byte* const out = reinterpret_cast<std::byte*>(&result);
  reduce_in_rank_order({dtype, op}, in, {&out, 1}, {0, 0, sizeof(T)});
  return result;
}

TEST(RankOrderSum, ANotANumberSurvivesAMaximum) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(reduced<float>(ReduceOp::max, DType::float32, {1, nan, 2})));
  EXPECT_TRUE(std::isnan(reduced<float>(ReduceOp::max, DType::float32, {nan, 1, 2})));
  EXPECT_EQ(reduced<float>(ReduceOp::max, DType::float32, {-infinity, -infinity}), -infinity);
  EXPECT_EQ(reduced<std::int32_t>(ReduceOp::max, DType::int32, {-5, -7, -6}), -5);
}

TEST(RankOrderSum, RoundsBfloat16OnceAndInRankOrder) {
  // 256 + 1 is no bfloat16: rounded after every addition the sum would stay 256.
  EXPECT_EQ(
      static_cast<float>(reduced<bfloat16>(ReduceOp::sum, DType::bfloat16, {bfloat16(256), bfloat16(1), bfloat16(1)})),
      258.0F);
  // In another order, 1 + -1e8 + 1e8 would be 0 and not 1.
  EXPECT_EQ(reduced<float>(ReduceOp::sum, DType::float32, {1e8F, -1e8F, 1}), 1.0F);
  EXPECT_EQ(reduced<float>(ReduceOp::sum, DType::float32, {1, -1e8F, 1e8F}), 0.0F);
}

TEST(RankOrderSum, OfIntegersWraps) {
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(reduced<std::int32_t>(ReduceOp::sum, DType::int32, {most, 1}), std::numeric_limits<std::int32_t>::min());
}

}  // namespace
}  // namespace echelon
