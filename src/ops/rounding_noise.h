// Stochastic rounding to bfloat16: up with the probability that preserves the mean ( Gupta et al. 2015,
// arXiv:1502.02551). The random bits come from a counter, so that every backend, every run and every layout has the
// same.
#pragma once

#include "base/philox.h"
#include "ops/operations/optimizer.h"

#include <bit>

namespace echelon {

/// With a key of the seed and of AdamWScalars::step.
[[nodiscard]] constexpr RoundingNoise at_step(RoundingNoise noise, double step) {
  noise.key += static_cast<std::uint64_t>(step) << 32;
  return noise;
}

/// For the elements [4 block, 4 block + 4) of a parameter a word each. Its lower half rounds the first moment, its
/// upper half the second.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> noise_block(const RoundingNoise& noise, std::int64_t block) {
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  const auto high = [](std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); };
  const auto counter = static_cast<std::uint64_t>(block);
  return philox4x32_10({low(counter), high(counter), low(noise.stream), high(noise.stream)},
                       {low(noise.key), high(noise.key)});
}
[[nodiscard]] constexpr std::uint32_t noise_word(const RoundingNoise& noise, std::int64_t i) {
  const std::int64_t index = noise.slice.index(i);
  return noise_block(noise, index / 4)[static_cast<std::size_t>(index % 4)];
}

/// The bits of the bfloat16 below x or above it in magnitude, by the lower half of `random`. Values that are a
/// bfloat16, infinity and NaN are unchanged.
[[nodiscard]] constexpr std::uint16_t stochastic_bfloat16(float x, std::uint32_t random) {
  const auto word = std::bit_cast<std::uint32_t>(x);
  if ((word & 0x7f800000U) == 0x7f800000U)
    return static_cast<std::uint16_t>(word >> 16 | ((word & 0x007fffffU) != 0 ? 0x40U : 0U));
  return static_cast<std::uint16_t>((word + (random & 0xffffU)) >> 16);
}

}  // namespace echelon
