// How much memory the machine has.
#pragma once

#include <cstdint>

namespace echelon {

/// Physical bytes; 0 where the system does not say.
[[nodiscard]] std::int64_t system_memory_bytes();

}  // namespace echelon
