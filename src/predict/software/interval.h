// How far a predicted step may be off.
#pragma once

#include "predict/software/software_profile.h"

#include <optional>
#include <string>
#include <vector>

namespace echelon {

/// Factors of a predicted time between which four of five measured ones are expected.
struct TimeInterval {
  double low = 1, high = 1;
};

/// Of the predictions with a profile on a machine. GPUs: from groups of published runs, each predicted without its own
/// constants and without the switches of its profile, and weighted as a whole. With x = log(measured / predicted),
/// exp(median(x) +- 1.90 median(|x - median(x)|)): 80 % of a normal x, and a group that is far off moves neither median
/// (benchmarks/accuracy/run --intervals).
/// Hosts: from 20 layouts (docs/results/accuracy-cpu.md). None for the profile `ideal`, whose time is a bound.
[[nodiscard]] std::optional<TimeInterval> interval_of(const SoftwareProfile& profile, const MachineSpec& machine);

/// What of a run on GPUs has no counterpart among those from which their interval comes, which are dense, in 16 bits,
/// on A100 and H100: {"of experts", "on B200"}. Few of them had matmuls in 8 bits, at a rate of their software's own.
[[nodiscard]] std::vector<std::string> without_runs(const RunConfig& config, const MachineSpec& machine,
                                                    const SoftwareProfile& profile);

}  // namespace echelon
