// This machine as it was measured once, kept in a file of the user's cache folder: for planning where no machine is
// named.
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
  std::filesystem::path path;  // where it is kept; empty: nowhere
  bool is_new = false;         // measured by this call
};

/// What `folder` keeps of a machine with the processor, cores and memory of `own`; measured and written there if it
/// keeps nothing of it that can be read. A folder that cannot be written keeps nothing.
[[nodiscard]] KeptMachine kept_machine(const HostSpec& own, const std::optional<std::filesystem::path>& folder,
                                       const std::function<HostSpec()>& measure);

}  // namespace echelon
