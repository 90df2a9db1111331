// How much memory the machine has.
#pragma once

#include <cstdint>

namespace echelon {

/// Physical bytes; 0 where the system does not say.
[[nodiscard]] std::int64_t system_memory_bytes();

/// What the system says of this process so far, all threads together.
struct ProcessMemory {
  std::int64_t peak_bytes = 0;  // the most that was resident at a time
  // Pages that were put in place when they were first touched; nothing was read from a disk for them.
  std::int64_t page_faults = 0;
};
[[nodiscard]] ProcessMemory process_memory();

}  // namespace echelon
