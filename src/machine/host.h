// Identifies the machine that this process runs on.
#pragma once

#include <cstdint>

namespace echelon {

/// A 64-bit hash of the host's name and boot: equal for all processes of one host, different on other hosts.
[[nodiscard]] std::uint64_t host_id();

}  // namespace echelon
