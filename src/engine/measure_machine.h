// Measures the machine that the program runs on: for `echelon bench`, and for the floors of a traced run.
#pragma once

#include "spec/host_spec.h"

#include <functional>
#include <string_view>

namespace echelon {

/// Multiply-adds and bandwidths of `num_cores` cores, in less than half a second; no products of matrices.
[[nodiscard]] ComputeRates measure_rates(int num_cores);

struct MeasureOptions {
  double seconds = 0.3;  // of each of the rates; there are about twenty
  int num_rounds = 5;    // over all sizes of operations and collectives; 0: rates alone
  std::function<void(std::string_view what, double fraction)> progress = {};
};
/// All of HostSpec; with the rounds it takes about 20 s. The machine should have nothing else to do.
[[nodiscard]] HostSpec measure_machine(const MeasureOptions& options);

}  // namespace echelon
