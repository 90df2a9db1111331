// Measures the machine that the program runs on: for `echelon bench`, and for the floors of a traced run.
#pragma once

#include "spec/host_spec.h"

namespace echelon {

/// Multiply-adds and bandwidths of `num_cores` cores, in less than half a second; no products of matrices.
[[nodiscard]] ComputeRates measure_rates(int num_cores);

struct MeasureOptions {
  double seconds = 0.3;  // of each figure; there are about twenty
};
/// All of HostSpec. The machine should have nothing else to do.
[[nodiscard]] HostSpec measure_machine(const MeasureOptions& options);

}  // namespace echelon
