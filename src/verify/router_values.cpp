#include "verify/router_values.h"

#include "nn/mixture/router_state.h"
#include "verify/reference.h"

#include <algorithm>

namespace echelon {

RouterValues router_values(const RankView& rank) {
  return {rank.run.step().router_sums(), rank.run.step().router_bias()};
}

RouterRow router_row(const Reference& reference, const RouterValues& values, const std::string& router) {
  const std::vector<std::string>& routers = reference.routers();
  const auto row = static_cast<std::size_t>(std::ranges::find(routers, router) - routers.begin());
  const std::size_t width = values.sums.size() / routers.size(), of_bias = values.bias.size() / routers.size();
  const std::span<const double> sums = std::span(values.sums).subspan(row * width, width);
  constexpr std::size_t num_counts = 2;  // of NaN, and of dropped rows
  const std::size_t E = width - num_router_losses - num_counts;
  return {.counts = sums.first(E),
          .losses = sums.subspan(E, num_router_losses),
          .num_nan = sums.subspan(E + num_router_losses, 1),
          .num_dropped = sums.last(1),
          .bias = std::span(values.bias).subspan(row * of_bias, of_bias)};
}

}  // namespace echelon
