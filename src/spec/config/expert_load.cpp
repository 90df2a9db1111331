#include "spec/config/expert_load.h"

#include "base/drawn_values.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>

namespace echelon {
namespace {

/// Shares of experts with these weights, none above `most`: what exceeds it goes to the others in proportion.
std::vector<double> bounded_shares(std::vector<double> weights, double most) {
  std::vector<double> shares(weights.size(), 0.0);
  std::vector<bool> is_full(weights.size(), false);
  for (double left = 1;;) {
    double open_weight = 0;
    for (std::size_t i = 0; i < weights.size(); ++i)
      if (!is_full[i]) open_weight += weights[i];
    bool has_filled = false;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (is_full[i]) continue;
      shares[i] = open_weight > 0 ? left * weights[i] / open_weight : 0;
      if (shares[i] <= most) continue;
      shares[i] = most;
      is_full[i] = has_filled = true;
    }
    if (!has_filled) return shares;
    left = 1 - most * static_cast<double>(std::ranges::count(is_full, true));
  }
}

/// 1 / i^zipf in a random order, the same on every machine.
std::vector<double> zipf_weights(std::int64_t num_experts, double zipf) {
  const DrawnValues drawn(stream_called("experts"), 0);
  std::vector<std::int64_t> order(static_cast<std::size_t>(num_experts));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, {}, [&](std::int64_t expert) { return drawn.uniform_at(expert, 1); });
  std::vector<double> weights(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    weights[static_cast<std::size_t>(order[i])] = std::pow(static_cast<double>(i + 1), -zipf);
  return weights;
}

}  // namespace

std::vector<double> shares_of_ranks(const ExpertLoad& load, const MixtureSpec& mixture, int num_ranks,
                                    double capacity) {
  const auto num_experts = static_cast<std::size_t>(mixture.num_experts), ranks = static_cast<std::size_t>(num_ranks),
             of_rank = num_experts / ranks;
  std::vector<std::vector<double>> layers = load.rows_of_layers;
  if (layers.empty()) layers.push_back(zipf_weights(mixture.num_experts, load.zipf));
  std::vector<double> mean(ranks, 0.0);
  for (const std::vector<double>& weights : layers) {
    std::vector<double> shares = bounded_shares(weights, 1.0 / static_cast<double>(mixture.num_experts_per_tok));
    for (double& share : shares) share = std::min(share, capacity);
    std::vector<double> of_layer;
    for (auto first = shares.begin(); first != shares.end(); first += static_cast<std::ptrdiff_t>(of_rank))
      of_layer.push_back(std::accumulate(first, first + static_cast<std::ptrdiff_t>(of_rank), 0.0));
    std::ranges::sort(of_layer, std::greater());
    for (std::size_t rank = 0; rank < ranks; ++rank) mean[rank] += of_layer[rank] / static_cast<double>(layers.size());
  }
  return mean;
}

}  // namespace echelon
