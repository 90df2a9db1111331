#include "predict/documents/drawn_lengths.h"

#include "base/error.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <random>

namespace echelon {
namespace {

constexpr double longest = 1e9;

bool read_number(std::string_view text, double& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(number);
}

}  // namespace

std::vector<std::int64_t> drawn_lengths(double mean, double spread, std::int64_t num_tokens) {
  const double variance = std::log1p(spread * spread / (mean * mean)), median = mean / std::exp(variance / 2);
  std::mt19937_64 random(1);
  const auto uniform = [&] { return (static_cast<double>(random() >> 11U) + 0.5) * 0x1p-53; };
  std::vector<std::int64_t> lengths;
  for (std::int64_t sum = 0; sum < num_tokens; sum += lengths.back()) {
    const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
    const double length = std::round(median * std::exp(std::sqrt(variance) * normal));
    lengths.push_back(static_cast<std::int64_t>(std::clamp(length, 1.0, static_cast<double>(num_tokens))));
  }
  return lengths;
}

std::pair<double, double> parse_length_distribution(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  double mean = 0, spread = 0;
  const bool has_mean = read_number(text.substr(0, colon), mean) && mean >= 1 && mean <= longest;
  const bool has_spread = colon == text.size() || read_number(text.substr(colon + 1), spread);
  require(has_mean && has_spread && spread >= 0 && spread <= longest,
          "--documents={} is neither an .idx file nor a mean length and its spread in tokens (examples: "
          "--documents=data/train.idx, --documents=2000:4000, --documents=9,7)",
          text);
  return {mean, colon == text.size() ? mean : spread};
}

std::vector<std::int64_t> described_lengths(std::string_view text, std::int64_t num_tokens) {
  if (text.find(',') == text.npos) {
    const auto [mean, spread] = parse_length_distribution(text);
    return drawn_lengths(mean, spread, num_tokens);
  }
  std::vector<std::int64_t> list, lengths;
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t end = std::min(text.find(',', first), text.size());
    double length = 0;
    require(read_number(text.substr(first, end - first), length) && length >= 1 && length <= longest &&
                std::trunc(length) == length,
            "--documents={} is not a list of lengths in tokens of at least 1 (use 9,7)", text);
    list.push_back(static_cast<std::int64_t>(length));
    first = end + 1;
  }
  for (std::int64_t sum = 0; sum < num_tokens; sum += lengths.back())
    lengths.push_back(list[lengths.size() % list.size()]);
  return lengths;
}

}  // namespace echelon
