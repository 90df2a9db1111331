#include "base/drawn_values.h"

#include "base/philox.h"

#include <cmath>
#include <numbers>

namespace echelon {
namespace {

constexpr std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
constexpr std::uint32_t high(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }

// In [0, 1), of 53 bits.
double uniform(std::uint32_t upper, std::uint32_t lower) {
  return static_cast<double>((std::uint64_t{upper} << 32 | lower) >> 11) * 0x1p-53;
}

}  // namespace

std::uint64_t stream_called(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

double DrawnValues::uniform_at(std::int64_t index, double bound) const {
  const auto words = words_of(static_cast<std::uint64_t>(index));
  return bound * (2.0 * uniform(words[0], words[1]) - 1.0);
}

void DrawnValues::draw(std::uint64_t pair) {
  const auto words = words_of(pair);
  // The first uniform value is in (0, 1], so that its logarithm is finite.
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(words[0], words[1])));
  const double angle = 2.0 * std::numbers::pi * uniform(words[2], words[3]);
  values_ = {radius * std::cos(angle), radius * std::sin(angle)};
  pair_ = pair;
  has_pair_ = true;
}

std::array<std::uint32_t, 4> DrawnValues::words_of(std::uint64_t counter) const {
  return philox4x32_10({low(counter), high(counter), low(stream_), high(stream_)}, {low(seed_), high(seed_)});
}

}  // namespace echelon
