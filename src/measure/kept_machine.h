// Stores the measurement of this machine in the user's cache folder, for planning without a named machine.
#pragma once

#include "spec/machine/host_spec.h"

#include <filesystem>
#include <functional>
#include <optional>

namespace echelon {

/// $XDG_CACHE_HOME/echelon, else $HOME/.cache/echelon; none if neither is set.
[[nodiscard]] std::optional<std::filesystem::path> cache_folder();

struct KeptMachine {
  HostSpec host;
  std::filesystem::path path;  // where it is stored; empty: nowhere
  bool is_new = false;         // measured by this call
};

/// Reads the stored measurement of a machine with the CPU, cores and memory of `own` from `folder`. If there is none or
/// it is unreadable, measures and stores it, if the folder is writable.
[[nodiscard]] KeptMachine kept_machine(const HostSpec& own, const std::optional<std::filesystem::path>& folder,
                                       const std::function<HostSpec()>& measure);

}  // namespace echelon
