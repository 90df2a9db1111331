// What a prediction promises, in one line: its time, how far that may be off, and the best that was published.
#pragma once

#include "predict/simulation/simulate.h"

#include <nlohmann/json.hpp>

#include <string>

namespace echelon {

/// "2.31 s (2.1 to 2.7; 41 % MFU; best published on A100 at this size: 65 %)"; after the interval maybe ", estimated
/// without runs of experts or on B200".
[[nodiscard]] std::string promise_text(const Simulation& result, const RunConfig& config, const MachineSpec& machine,
                                       const SoftwareProfile& profile);

/// " of bfloat16's peak" where matmuls are faster than the dtype whose peak MFU is a share of, as other software has
/// it; else empty.
[[nodiscard]] std::string mfu_share_text(const RunConfig& config);

/// interval_seconds, interval_without_runs, best_published, warning, memory_warning: those that there are.
[[nodiscard]] nlohmann::ordered_json promise_json(const Simulation& result, const RunConfig& config,
                                                  const MachineSpec& machine, const SoftwareProfile& profile);

/// Seconds, shortest and longest; equal where there is no interval.
struct SecondsRange {
  double low = 0, high = 0;
};
[[nodiscard]] SecondsRange seconds_range(const Simulation& result, const MachineSpec& machine,
                                         const SoftwareProfile& profile);

/// Without the time and the best published one: "2.1 to 2.7 s, 41 % MFU".
[[nodiscard]] std::string range_text(const Simulation& result, const RunConfig& config, const MachineSpec& machine,
                                     const SoftwareProfile& profile);
/// "the interval is estimated without runs of experts or on B200"; empty where runs were like this one, or there is no
/// interval.
[[nodiscard]] std::string without_runs_text(const RunConfig& config, const MachineSpec& machine,
                                            const SoftwareProfile& profile);

/// A sentence if the step has a higher utilisation than any published one on the GPU at this size, or at any where
/// there is none; else empty.
[[nodiscard]] std::string warning_of(const Simulation& result, const RunConfig& config, const MachineSpec& machine);

/// "the device with the highest memory use has 78.27 of 78.36 GiB (99.9 %)": how full one is of which more than 97 % is
/// taken; else empty.
[[nodiscard]] std::string fullness_of(const Simulation& result);

}  // namespace echelon
