// What shows that a probe of a peak is wrong: something measured is faster than the peak allows.
#pragma once

#include "spec/machine/host_spec.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// Two measurements of the same rate may differ by so much without an error of either.
constexpr double probe_tolerance = 0.02;

/// One sentence, with both rates, for each format and choice of cores in which a measured matmul is faster than the
/// measured multiply-adds.
[[nodiscard]] std::vector<std::string> probe_errors(const HostSpec& machine);

/// A sentence if the model's flops per second exceed the peak of the run. Both count all ranks.
[[nodiscard]] std::optional<std::string> mfu_error(double flops_per_second, double peak_flops);

/// A sentence if `floor_seconds`, what the peak of multiply-adds allows, is above the measured time of `what` ("the
/// step", "matmul").
[[nodiscard]] std::optional<std::string> floor_error(std::string_view what, double floor_seconds,
                                                     double measured_seconds);

/// A sentence if a step takes less than a floor that counts the bytes of its operations: they then come from caches.
[[nodiscard]] std::optional<std::string> memory_floor_error(double floor_seconds, double step_seconds);

}  // namespace echelon
