// Stores the measurement of this machine in the user's cache folder, for planning without a named machine.
#pragma once

#include "spec/machine/host_spec.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

namespace echelon {

/// $XDG_CACHE_HOME/echelon, else $HOME/.cache/echelon; none if neither is set.
[[nodiscard]] std::optional<std::filesystem::path> cache_folder();

struct Measurement {
  HostSpec host;
  double share_of_others = 0;  // of the cores' time meanwhile
};
/// First line of a machine file that was measured on a busy machine.
constexpr std::string_view busy_mark = "# measured while other processes used the cores";
/// From here on a measurement says too little: it is kept, and repeated once the machine is idle.
constexpr double busy_share = 0.1;

struct KeptMachine {
  HostSpec host;
  std::filesystem::path path;  // where it is stored; empty: nowhere
  bool is_new = false;         // measured by this call
  bool was_busy = false;       // when it was measured
};

/// How a machine is measured, and how busy others keep it now.
struct MachineMeter {
  std::function<Measurement()> measure;
  std::function<double()> share_of_others;
};

/// The measurement stored in `folder` of a machine that has the CPU, cores and memory that `own` has. Measures the
/// machine if there is none, if it is unreadable or its rates contradict each other (spec/machine/probe_errors.h), or
/// if it was made on a busy machine that is idle now. Stores that if the folder is writable and the rates agree.
[[nodiscard]] KeptMachine kept_machine(const HostSpec& own, const std::optional<std::filesystem::path>& folder,
                                       const MachineMeter& meter);

}  // namespace echelon
