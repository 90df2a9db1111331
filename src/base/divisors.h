// Divisors that a message suggests.
#pragma once

#include <algorithm>
#include <cstdint>

namespace echelon {

/// The divisor of `whole` that is closest to `wanted`; of two the smaller.
[[nodiscard]] inline std::int64_t closest_divisor(std::int64_t whole, std::int64_t wanted) {
  const std::int64_t start = std::clamp<std::int64_t>(wanted, 1, whole);
  for (std::int64_t distance = 0; distance < whole; ++distance) {
    if (start - distance >= 1 && whole % (start - distance) == 0) return start - distance;
    if (start + distance <= whole && whole % (start + distance) == 0) return start + distance;
  }
  return 1;
}

}  // namespace echelon
