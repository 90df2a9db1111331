#include "spec/machine/host_curves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

namespace echelon {
namespace {

using Place = std::array<std::int64_t, 3>;

Place place_of(const OperationPoint& point) { return {point.m, point.n, point.k}; }

double log_of(std::int64_t size) { return std::log(static_cast<double>(std::max<std::int64_t>(size, 1))); }

/// The two measured sizes around a size, and its position between the lower (0) and the upper (1).
struct Bracket {
  std::int64_t lower = 0, upper = 0;
  double fraction = 0;
};

Bracket bracket(const std::set<std::int64_t>& sizes, std::int64_t size) {
  const auto upper = sizes.lower_bound(size);
  if (upper == sizes.end()) return {*sizes.rbegin(), *sizes.rbegin(), 0};
  if (*upper == size || upper == sizes.begin()) return {*upper, *upper, 0};
  const std::int64_t lower = *std::prev(upper);
  return {lower, *upper, (log_of(size) - log_of(lower)) / (log_of(*upper) - log_of(lower))};
}

const OperationPoint& closest_point(const OperationCurve& curve, const Place& place) {
  const auto distance = [&](const OperationPoint& point) {
    double sum = 0;
    for (std::size_t i = 0; i < place.size(); ++i) sum += std::pow(log_of(place_of(point)[i]) - log_of(place[i]), 2);
    return sum;
  };
  return *std::min_element(curve.begin(), curve.end(),
                           [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
}

}  // namespace

double interpolated_seconds(const OperationCurve& curve, const OperationPoint& size, double OperationPoint::*seconds) {
  const Place place = place_of(size);
  std::array<Bracket, 3> around;
  for (std::size_t i = 0; i < place.size(); ++i) {
    std::set<std::int64_t> sizes;
    for (const OperationPoint& point : curve) sizes.insert(place_of(point)[i]);
    around[i] = bracket(sizes, place[i]);
  }
  double log_of_cost = 0;  // seconds per amount
  for (unsigned corner = 0; corner < 8; ++corner) {
    Place at{};
    double weight = 1;
    for (std::size_t i = 0; i < place.size(); ++i) {
      const bool is_upper = (corner >> i & 1U) != 0;
      at[i] = is_upper ? around[i].upper : around[i].lower;
      weight *= is_upper ? around[i].fraction : 1 - around[i].fraction;
    }
    if (weight == 0) continue;
    const OperationPoint& point = closest_point(curve, at);
    log_of_cost += weight * std::log(point.*seconds / point.amount);
  }
  return std::exp(log_of_cost) * size.amount;
}

double interpolated_seconds(const std::vector<DistancePoint>& curve, double distance, double DistancePoint::*seconds) {
  DistancePoint lower = {.distance = close_bytes};
  for (const DistancePoint& upper : curve) {
    const auto from = static_cast<double>(lower.distance), to = static_cast<double>(upper.distance);
    if (distance < to) {
      const double fraction = std::max(0.0, std::log(distance / from) / std::log(to / from));
      return lower.*seconds + fraction * (upper.*seconds - lower.*seconds);
    }
    lower = upper;
  }
  return lower.*seconds;
}

}  // namespace echelon
