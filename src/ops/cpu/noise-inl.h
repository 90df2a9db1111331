// Rounding at random with vectors: the numbers of ops/rounding_noise.h, many at once. Included once per instruction set
// (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_NOISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_NOISE_INL_H_
#undef ECHELON_OPS_CPU_NOISE_INL_H_
#else
#define ECHELON_OPS_CPU_NOISE_INL_H_
#endif
// clang-format on

#include "base/philox.h"
#include "hwy/highway.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/rounding_noise.h"

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

using Words = Vec<std::uint32_t>;

#if HWY_TARGET != HWY_SCALAR  // which has one lane, and so no halves of a matmul

/// The two halves of the products of 32 bits each.
struct Product {
  Words low, high;
};
HWY_INLINE Product product(Words a, Words b) {
  const Tag<std::uint32_t> d;
  const hn::Repartition<std::uint64_t, Tag<std::uint32_t>> d64;
  const auto even = hn::MulEven(a, b), odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), b);
  const auto high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  return {hn::Mul(a, b), high};
}

/// noise_block of [block, block + lanes), one word after the other: philox4x32_10 (base/philox.h) with a block in each
/// lane.
HWY_INLINE void noise_blocks(const RoundingNoise& noise, std::int64_t block, std::uint32_t* words) {
  const Tag<std::uint32_t> d;
  const auto number = [d](std::uint64_t x) HWY_ATTR { return hn::Set(d, static_cast<std::uint32_t>(x)); };
  const auto counter = static_cast<std::uint64_t>(block);
  const auto multiplier_0 = number(philox_multiplier_0), multiplier_1 = number(philox_multiplier_1);
  auto x0 = hn::Add(number(counter), hn::Iota(d, 0U)), x2 = number(noise.stream), x3 = number(noise.stream >> 32);
  auto x1 = hn::IfThenElse(hn::Lt(x0, number(counter)), number((counter >> 32) + 1), number(counter >> 32));
  std::uint32_t key_0 = static_cast<std::uint32_t>(noise.key), key_1 = static_cast<std::uint32_t>(noise.key >> 32);
  for (int round = 0; round < philox_rounds; ++round) {
    const Product of_0 = product(x0, multiplier_0), of_1 = product(x2, multiplier_1);
    x0 = hn::Xor(hn::Xor(of_1.high, x1), number(key_0));
    x2 = hn::Xor(hn::Xor(of_0.high, x3), number(key_1));
    x1 = of_1.low;
    x3 = of_0.low;
    key_0 += philox_weyl_0;
    key_1 += philox_weyl_1;
  }
  hn::StoreInterleaved4(x0, x1, x2, x3, d, words);
}

#else

HWY_INLINE void noise_blocks(const RoundingNoise& noise, std::int64_t block, std::uint32_t* words) {
  const std::array<std::uint32_t, 4> of_block = noise_block(noise, block);
  std::copy(of_block.begin(), of_block.end(), words);
}

#endif

/// x rounded to a bfloat16 by the lower halves of `random`; infinity and NaN as they are.
HWY_INLINE Vec<float> stochastically_rounded(Vec<float> x, Words random) {
  const Tag<float> d;
  const Tag<std::uint32_t> words;
  const auto word = hn::BitCast(words, x), exponent = hn::Set(words, 0x7f800000U);
  const auto rounded = hn::And(hn::Add(word, hn::And(random, hn::Set(words, 0xffffU))), hn::Set(words, 0xffff0000U));
  return hn::BitCast(d, hn::IfThenElse(hn::Eq(hn::And(word, exponent), exponent), word, rounded));
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
