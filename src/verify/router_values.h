// What the routers of a model have summed up in a step, and the biases that follow from it; on every rank the same.
#pragma once

#include "engine/run_observer.h"

#include <span>
#include <string>
#include <vector>

namespace echelon {

class Reference;

struct RouterValues {
  std::vector<double> sums;  // [M, RouterSums::num_columns()]
  std::vector<float> bias;   // [M, E], if there is one
};
[[nodiscard]] RouterValues router_values(const RankView& rank);

/// Those of one layer.
struct RouterRow {
  std::span<const double> counts;  // of experts
  std::span<const double> losses;
  std::span<const double> num_nan, num_dropped;
  std::span<const float> bias;
};
/// `router`: the name of its weight.
[[nodiscard]] RouterRow router_row(const Reference& reference, const RouterValues& values, const std::string& router);

}  // namespace echelon
