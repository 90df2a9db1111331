// Times operations on this machine: each on one core while others idle, on every core at once, and on all cores
// together.
#pragma once

#include "ops/cpu/product_choice.h"
#include "ops/sample.h"
#include "spec/machine/host_curves.h"

#include <functional>
#include <optional>

namespace echelon {

struct OperationMeasurement {
  int num_rounds = 5;                                 // every size is timed once in each round; the median counts
  double sample_seconds = 200e-6;                     // at least this long, by calling an operation several times
  std::int64_t pool_bytes = std::int64_t{64} << 20U;  // bytes of operands per core; larger sizes are skipped
  std::function<void(double fraction)> progress = {};
  std::optional<ProductChoice> products = {};  // of matmuls; none: choose_products({})
};

/// By kind and format, in the order of `sizes`.
[[nodiscard]] OperationCurves measure_operations(const std::vector<OperationSize>& sizes,
                                                 const OperationMeasurement& options);

/// Sizes that cover the operations of layers, in the formats that this program trains in.
[[nodiscard]] std::vector<OperationSize> usual_operation_sizes();

}  // namespace echelon
