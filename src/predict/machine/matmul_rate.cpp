#include "predict/machine/matmul_rate.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace echelon {
namespace {

double saturation(std::int64_t size, double half) {
  return static_cast<double>(size) / (static_cast<double>(size) + half);
}

std::int64_t parts(std::int64_t size, std::int64_t part) { return (size + part - 1) / part; }

/// Seconds of a tile grow with k + half_k: it is filled and drained once, whatever k is. A part of k also writes its
/// sum and reads those of the others.
double efficiency_of(const MatmulTile& tile, const DeviceSpec& device, std::int64_t m, std::int64_t n, double k,
                     double half_k) {
  const auto processors = static_cast<double>(device.num_multiprocessors);
  const auto tiles = static_cast<double>(parts(m, tile.m) * parts(n, tile.n));
  const double waves = std::ceil(tiles / processors);
  const double useful =
      static_cast<double>(m) * static_cast<double>(n) / static_cast<double>(tile.m * tile.n) / processors;
  const double whole = useful / waves * k / (k + half_k);
  const double num_parts = std::floor(processors / tiles);
  const double in_parts = num_parts >= 2 ? useful * k / (k / num_parts + 2 * half_k) : 0;
  return tile.efficiency * std::max(whole, in_parts);
}

/// The matmul rates of a shape beyond the measured ones are those of the closest measured shape: nothing is
/// extrapolated.
double clamped_log(std::int64_t size, double low, double high) {
  return std::clamp(std::log2(static_cast<double>(size)), low, high);
}

/// Measured rates averaged in logarithms, each weighted by the eighth power of its nearness in the logarithms of the
/// sizes: what is near decides, and no rate leaves the range of the measured ones.
double measured_rate(const std::vector<MatmulPoint>& points, std::int64_t m, std::int64_t n, std::int64_t k) {
  std::array<double, 3> low, high;
  low.fill(1e9);
  high.fill(-1e9);
  for (const MatmulPoint& point : points) {
    const double sizes[] = {std::log2(point.m), std::log2(point.n), std::log2(point.k)};
    for (std::size_t i = 0; i < 3; ++i) {
      low[i] = std::min(low[i], sizes[i]);
      high[i] = std::max(high[i], sizes[i]);
    }
  }
  const double x = clamped_log(m, low[0], high[0]), y = clamped_log(n, low[1], high[1]),
               z = clamped_log(k, low[2], high[2]);
  double weights = 0, sum = 0;
  for (const MatmulPoint& point : points) {
    const double dx = x - std::log2(point.m), dy = y - std::log2(point.n), dz = z - std::log2(point.k);
    const double distance = dx * dx + dy * dy + dz * dz + 1e-3;
    const double weight = 1 / (distance * distance * distance * distance);
    weights += weight;
    sum += weight * std::log(point.flops);
  }
  return std::exp(sum / weights);
}

}  // namespace

double tile_efficiency(const DeviceSpec& device, std::int64_t m, std::int64_t n, std::int64_t k, double half_k) {
  if (device.num_multiprocessors == 0 || device.tiles.empty()) return saturation(k, half_k);
  double best = 0;
  for (const MatmulTile& tile : device.tiles)
    best = std::max(best, efficiency_of(tile, device, m, n, static_cast<double>(k), half_k));
  return best;
}

double matmul_rate(const DeviceSpec& device, const FormatRates& rates, std::int64_t m, std::int64_t n, std::int64_t k) {
  if (!rates.points.empty()) return std::min(measured_rate(rates.points, m, n, k), rates.peak_flops);
  const MatmulCurve& curve = rates.matmul;
  return rates.peak_flops * curve.efficiency * saturation(m, curve.half_m) * saturation(n, curve.half_n) *
         tile_efficiency(device, m, n, k, curve.half_k);
}

}  // namespace echelon
