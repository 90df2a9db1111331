// What echelon bench says about the measurement of a host: whether others disturbed it, which cores share what, how far
// cores scale, and which rates contradict each other.
#pragma once

#include "machine/topology.h"
#include "measure/measure_machine.h"

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

struct RateName {
  std::string_view name, key;
  double ComputeRates::*rate;
};
/// In the order in which they are printed.
[[nodiscard]] std::span<const RateName> rate_names();

struct HostFindings {
  double share_of_others = 0;  // of the cores' time meanwhile
  CpuTopology topology;
  std::vector<CoreScaling> scaling;
  std::vector<std::string> unsure;  // rates whose rounds disagree: "core float32_flops"
  std::vector<std::string> errors;  // of probes, one sentence each
  double cycles_of_short_loop = 1;  // measure_cycles_of_short_loop()

  [[nodiscard]] bool is_busy() const;
  /// With work that this system does not see, of another virtual machine.
  [[nodiscard]] bool shares_cores() const;
};

struct MeasuredHost {
  HostSpec machine;
  HostFindings findings;
};
/// The machine and the scaling of its cores, and what that says about the measurement.
[[nodiscard]] MeasuredHost measure_host(const MeasureOptions& options);

/// Reads the topology of the cores that this process may use.
[[nodiscard]] HostFindings findings_of(const HostSpec& machine, double share_of_others,
                                       std::vector<CoreScaling> scaling);

/// A table of the rates and their spread.
[[nodiscard]] std::string rates_text(const HostSpec& machine);
[[nodiscard]] nlohmann::ordered_json rates_json(const HostSpec& machine);

/// Some lines.
[[nodiscard]] std::string to_text(const HostFindings& findings);
[[nodiscard]] nlohmann::ordered_json to_json(const HostFindings& findings);

}  // namespace echelon
