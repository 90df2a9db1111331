// Sequences of documents of drawn lengths, on which the balance of the ranks is measured.
#pragma once

#include "base/philox.h"
#include "context/documents.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

namespace echelon {

enum class Lengths : std::uint8_t { lognormal, pareto, half, short_only };
inline constexpr std::array all_lengths = {Lengths::lognormal, Lengths::pareto, Lengths::half, Lengths::short_only};

inline std::string_view name_of(Lengths lengths) {
  constexpr std::array<std::string_view, 4> names = {"lognormal", "Pareto", "half", "short"};
  return names[static_cast<std::size_t>(lengths)];
}

/// Documents of one sequence of `T` tokens in drawn order; the last is cut off at the end. Lognormal: median 2,000,
/// sigma 1.5. Pareto: from 300 on, exponent 1.1. Half: one of T / 2 after the first short ones. Short: uniform 100 to
/// 2,000.
class DrawnLengths {
 public:
  explicit DrawnLengths(std::uint32_t seed) : seed_(seed) {}

  [[nodiscard]] DocumentOffsets sequence(Lengths lengths, std::int64_t T) {
    DocumentOffsets offsets = {0};
    const double place = uniform();  // of the document of T / 2
    bool has_half = lengths != Lengths::half;
    while (offsets.back() < T) {
      auto length = draw(lengths);
      if (!has_half && static_cast<double>(offsets.back() + length) > place * static_cast<double>(T) / 2) {
        length = T / 2;
        has_half = true;
      }
      offsets.push_back(static_cast<std::int32_t>(std::min(T, offsets.back() + length)));
    }
    return offsets;
  }

  [[nodiscard]] std::int64_t draw(Lengths lengths) {
    if (lengths == Lengths::lognormal) {
      const double radius = std::sqrt(-2 * std::log(uniform()));
      const double normal = radius * std::cos(2 * std::numbers::pi * uniform());
      return std::max<std::int64_t>(1, std::llround(2000 * std::exp(1.5 * normal)));
    }
    if (lengths == Lengths::pareto) return std::llround(std::min(1e9, 300 * std::pow(uniform(), -1 / 1.1)));
    return 100 + static_cast<std::int64_t>(uniform() * 1901);
  }

 private:
  /// In (0, 1).
  double uniform() {
    const auto bits = philox4x32_10({counter_++, 0, 0, 0}, {seed_, 0})[0];
    return (bits + 0.5) / 4294967296.0;
  }

  std::uint32_t seed_, counter_ = 0;
};

}  // namespace echelon
