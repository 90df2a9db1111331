#include "engine/generation/sampler.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace echelon {

void validate(const SamplingOptions& options) {
  require(options.temperature >= 0, "temperature = {} is below 0 (use 0, the likeliest token)", options.temperature);
  require(options.top_k >= 0, "top_k = {} is below 0 (use 0, all tokens)", options.top_k);
  require(options.top_p > 0 && options.top_p <= 1, "top_p = {} is not in (0, 1] (use {})", options.top_p,
          options.top_p > 1 ? 1.0 : 0.01);
}

std::int32_t Sampler::draw(std::span<const double> logits) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  if (options_.temperature == 0) return order.front();
  if (options_.top_k > 0 && options_.top_k < static_cast<std::int64_t>(order.size()))
    order.resize(static_cast<std::size_t>(options_.top_k));

  std::vector<double> weights;
  const double largest = logits[static_cast<std::size_t>(order.front())];
  for (const std::int32_t token : order)
    weights.push_back(std::exp((logits[static_cast<std::size_t>(token)] - largest) / options_.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t kept = 0;
  double kept_weight = 0;
  while (kept < weights.size() && (kept == 0 || kept_weight < options_.top_p * total)) kept_weight += weights[kept++];

  // 53 random bits: standard distributions differ between libraries.
  double left = static_cast<double>(random_() >> 11U) * 0x1.0p-53 * kept_weight;
  for (std::size_t i = 0; i < kept; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

}  // namespace echelon
