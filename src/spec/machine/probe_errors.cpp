#include "spec/machine/probe_errors.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

constexpr std::string_view remedy =
    "so the probe is wrong: measure again on an idle machine with echelon bench --output FILE, set "
    "--metrics.machine=FILE, and report it if it repeats";

bool exceeds(double value, double bound) { return bound > 0 && value > bound * (1 + probe_tolerance); }

/// Of these cores.
struct Cores {
  std::string_view name;
  ComputeRates HostSpec::*rates;
  std::vector<double OperationPoint::*> seconds;
};

/// The fastest matmul of the format on these cores.
double fastest_product(const HostSpec& machine, const Cores& cores, std::string_view dtype) {
  double fastest = dtype == "float32" ? (machine.*cores.rates).sgemm_flops : 0;
  const auto by_dtype = machine.operations.find("matmul");
  if (by_dtype == machine.operations.end()) return fastest;
  const auto curve = by_dtype->second.find(std::string(dtype));
  if (curve == by_dtype->second.end()) return fastest;
  for (const OperationPoint& point : curve->second)
    for (const auto seconds : cores.seconds)
      if (point.*seconds > 0) fastest = std::max(fastest, point.amount / point.*seconds);
  return fastest;
}

}  // namespace

std::vector<std::string> probe_errors(const HostSpec& machine) {
  const Cores choices[] = {
      {"one core", &HostSpec::core, {&OperationPoint::core_seconds, &OperationPoint::busy_seconds}},
      {"all cores", &HostSpec::device, {&OperationPoint::shared_seconds}}};
  std::vector<std::string> errors;
  for (const Cores& cores : choices)
    for (const std::string_view dtype : {"float32", "float64", "bfloat16"}) {
      const double peak = (machine.*cores.rates).peak_flops(dtype).value_or(0),
                   product = fastest_product(machine, cores, dtype);
      if (exceeds(product, peak))
        errors.push_back(fmt::format("a {} matmul on {} reaches {:.1f} GFLOP/s, but the probe of its peak {:.1f}, {}",
                                     dtype, cores.name, product / 1e9, peak / 1e9, remedy));
    }
  return errors;
}

std::optional<std::string> mfu_error(double flops_per_second, double peak_flops) {
  if (!exceeds(flops_per_second, peak_flops)) return std::nullopt;
  return fmt::format("mfu is {:.1f} %: the step does {:.4g} TFLOP/s, but the measured peak is {:.4g}, {}",
                     100 * flops_per_second / peak_flops, flops_per_second / 1e12, peak_flops / 1e12, remedy);
}

std::optional<std::string> floor_error(std::string_view what, double floor_seconds, double measured_seconds) {
  if (!exceeds(floor_seconds, measured_seconds)) return std::nullopt;
  return fmt::format("the floor of {} is {:.3f} ms, but it takes {:.3f} ms, {}", what, 1e3 * floor_seconds,
                     1e3 * measured_seconds, remedy);
}

std::optional<std::string> memory_floor_error(double floor_seconds, double step_seconds) {
  if (!exceeds(floor_seconds, step_seconds)) return std::nullopt;
  return fmt::format(
      "the floor of the step is {:.3f} ms, but it takes {:.3f} ms, so the floor is wrong: either operands come from "
      "caches, which are faster than memory, or the bandwidth must be measured again with echelon bench --output FILE",
      1e3 * floor_seconds, 1e3 * step_seconds);
}

}  // namespace echelon
