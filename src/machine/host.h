// Which machine this process runs on.
#pragma once

#include <cstdint>

namespace echelon {

/// Equal for the processes of one host (its name and its boot), and different on others as far as a hash of 64 bits
/// goes.
[[nodiscard]] std::uint64_t host_id();

}  // namespace echelon
