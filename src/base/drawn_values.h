// Random values that are functions of a seed, a stream and an index alone, so that any part of them can be drawn alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace echelon {

/// FNV-1a of 64 bits, unlike std::hash, of a tensor's global name.
[[nodiscard]] std::uint64_t stream_called(std::string_view name);

/// The values of one stream, such as a tensor. Each Philox block (base/philox.h) gives two normal ones (Box and Muller
/// 1958).
class DrawnValues {
 public:
  DrawnValues(std::uint64_t stream, std::int64_t seed) : stream_(stream), seed_(static_cast<std::uint64_t>(seed)) {}

  /// Uniform in [-bound, bound).
  [[nodiscard]] double uniform_at(std::int64_t index, double bound) const;
  /// normal(0, 1). In ascending order every second one is already known.
  [[nodiscard]] double normal_at(std::int64_t index) {
    const auto pair = static_cast<std::uint64_t>(index) / 2;
    if (!has_pair_ || pair != pair_) draw(pair);
    return values_[static_cast<std::size_t>(index % 2)];
  }

 private:
  void draw(std::uint64_t pair);
  [[nodiscard]] std::array<std::uint32_t, 4> words_of(std::uint64_t counter) const;

  std::uint64_t stream_, seed_;
  std::uint64_t pair_ = 0;
  bool has_pair_ = false;
  std::array<double, 2> values_{};
};

}  // namespace echelon
