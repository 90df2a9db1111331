// The name of the machine, for messages that name a process.
#pragma once

#include <string>

namespace echelon {

/// Of this machine; empty if the system does not say.
[[nodiscard]] std::string host_name();

}  // namespace echelon
