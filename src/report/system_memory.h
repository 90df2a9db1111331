// Memory of the machine and of this process.
#pragma once

#include <cstdint>

namespace echelon {

/// Physical bytes; 0 if unknown.
[[nodiscard]] std::int64_t system_memory_bytes();

/// Figures of this process so far, over all threads.
struct ProcessMemory {
  std::int64_t peak_bytes = 0;  // peak of resident bytes
  // Pages mapped at their first touch, without reading from a disk (minor faults).
  std::int64_t page_faults = 0;
};
[[nodiscard]] ProcessMemory process_memory();

}  // namespace echelon
