// Measures the machine that the program runs on: for `echelon bench`, and for the lower bounds of a traced run.
#pragma once

#include "measure/measure_scaling.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/sample.h"
#include "spec/machine/host_spec.h"

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace echelon {

/// Multiply-adds and bandwidths of `num_cores` cores, in less than half a second. No matmuls.
[[nodiscard]] ComputeRates measure_rates(int num_cores);

/// Only its CPU, its usable cores and its memory.
[[nodiscard]] HostSpec unmeasured_machine();

struct MeasureOptions {
  double seconds = 0.3;  // for each of the rates; there are about twenty
  int num_rounds = 5;    // over all sizes of operations and collectives; 0: rates only
  std::function<void(std::string_view what, double fraction)> progress = {};
  std::optional<ProductChoice> products = {};  // of matmuls; none: choose_products({})
};
/// All of HostSpec; with the rounds it takes about 20 s. The machine should be idle. A peak that a matmul contradicts
/// is probed again, and may still be wrong (spec/machine/probe_errors.h).
[[nodiscard]] HostSpec measure_machine(const MeasureOptions& options);

/// What several cores reach in multiples of one (measure/measure_scaling.h).
[[nodiscard]] std::vector<CoreScaling> measure_core_scaling(const MeasureOptions& options);

/// Measures only what a prediction of these operations needs. Each is called once or twice, large ones in a smaller
/// size that reaches the same rate. Takes about as long as a step of a small run, at most some tenths of a second.
[[nodiscard]] HostSpec measure_for(const std::vector<OperationSize>& sizes, const ProductRequest& products = {});

}  // namespace echelon
