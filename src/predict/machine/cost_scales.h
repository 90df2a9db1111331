// What measured steps say about a machine: by which factors its computing and its communication take longer than its
// file says.
#pragma once

#include "spec/machine/machine_spec.h"

#include <functional>
#include <vector>

namespace echelon {

/// Seconds that something takes over those that a machine's description gives.
struct CostScales {
  double compute = 1;        // operations of a device
  double communication = 1;  // collectives and transfers, inside of nodes and between them
  bool operator==(const CostScales&) const = default;
};

/// The machine on which everything takes so much longer. What a rate cannot reach by a part of its peak that is below 1
/// raises the peak.
[[nodiscard]] MachineSpec scaled(MachineSpec machine, const CostScales& scales);

/// Seconds of some steps with scales.
using ScaledSeconds = std::function<std::vector<double>(const CostScales&)>;

/// The scales with which `predicted` comes closest to `measured` (Gauss-Newton steps on the logarithms). Few steps
/// cannot tell the two scales apart, so both are equal unless the measurements contradict that. The mean error of the
/// result is never above that of the best factor for both.
[[nodiscard]] CostScales fit_cost_scales(const std::vector<double>& measured, const ScaledSeconds& predicted);

/// Mean of |predicted / measured - 1|; the two are as long.
[[nodiscard]] double mean_relative_error(const std::vector<double>& predicted, const std::vector<double>& measured);

}  // namespace echelon
