// Measures the machine that the program runs on: for `echelon bench`, and for the floors of a traced run.
#pragma once

#include "ops/sample.h"
#include "spec/machine/host_spec.h"

#include <functional>
#include <string_view>
#include <vector>

namespace echelon {

/// Multiply-adds and bandwidths of `num_cores` cores, in less than half a second; no products of matrices.
[[nodiscard]] ComputeRates measure_rates(int num_cores);

/// Its processor, its usable cores and its memory alone.
[[nodiscard]] HostSpec unmeasured_machine();

struct MeasureOptions {
  double seconds = 0.3;  // of each of the rates; there are about twenty
  int num_rounds = 5;    // over all sizes of operations and collectives; 0: rates alone
  std::function<void(std::string_view what, double fraction)> progress = {};
};
/// All of HostSpec; with the rounds it takes about 20 s. The machine should have nothing else to do.
[[nodiscard]] HostSpec measure_machine(const MeasureOptions& options);

/// What predicts a run of these operations, and no more: each is called once or twice, and large ones in a smaller size
/// that reaches the same rate. Takes about as long as a step of a small run, at most some tenths of a second.
[[nodiscard]] HostSpec measure_for(const std::vector<OperationSize>& sizes);

}  // namespace echelon
