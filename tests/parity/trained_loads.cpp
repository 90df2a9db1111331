#include "parity/trained_loads.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

namespace echelon::testing {

std::vector<std::vector<std::int64_t>> trained_loads() {
  std::ifstream file(ECHELON_SOURCE_DIR "/tests/parity/trained_loads.json");
  return nlohmann::json::parse(file).get<std::vector<std::vector<std::int64_t>>>();
}

// Places of the first experts, then those of the second ones, each expert's together: a token has two of them.
Choice choice_with(const std::vector<std::int64_t>& loads, std::int64_t num_tokens) {
  const std::int64_t all = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  std::vector<std::int32_t> places;
  std::int64_t before = 0;
  for (std::size_t expert = 0; expert < loads.size(); ++expert) {
    before += loads[expert];
    places.resize(static_cast<std::size_t>(2 * num_tokens * before / all), static_cast<std::int32_t>(expert));
  }
  return [places, num_tokens](std::int64_t n, std::int64_t j) {
    return places.at(static_cast<std::size_t>(n + num_tokens * j));
  };
}

double largest_part(const std::vector<std::int64_t>& loads, std::int64_t num_parts) {
  const auto size = std::ssize(loads) / num_parts;
  const std::int64_t all = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  std::int64_t largest = 0;
  for (auto part = loads.begin(); part != loads.end(); part += size)
    largest = std::max(largest, std::accumulate(part, part + size, std::int64_t{0}));
  return static_cast<double>(largest * num_parts) / static_cast<double>(all);
}

}  // namespace echelon::testing
