// How much longer operations take on operands that have left the closest caches: on every core at once, and on all
// cores together.
#pragma once

#include "ops/cpu/product_choice.h"
#include "spec/machine/host_curves.h"

#include <functional>
#include <optional>

namespace echelon {

struct DistanceMeasurement {
  int num_rounds = 5;                                  // of which the median counts
  double sample_seconds = 500e-6;                      // at least this long, by calling an operation several times
  std::int64_t pool_bytes = std::int64_t{256} << 20U;  // of operands per core: the largest distance
  std::function<void(double fraction)> progress = {};
  std::optional<ProductChoice> products = {};  // of matmuls; none: choose_products({})
};

/// By kind and format, each at the one of its usual sizes whose operands are closest to half of close_bytes.
[[nodiscard]] DistanceCurves measure_distances(const DistanceMeasurement& options);

}  // namespace echelon
