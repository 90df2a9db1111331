// Where an arena is allocated: host memory, addresses without memory, or device memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace echelon {

class MemorySpace {
 public:
  virtual ~MemorySpace() = default;
  /// Zero-filled and aligned to alignment_bytes. Throws Failure when there is not enough.
  [[nodiscard]] virtual std::byte* allocate(std::int64_t num_bytes) = 0;
  virtual void release(std::byte* address, std::int64_t num_bytes) = 0;
};

/// Allocates all pages at once, huge ones if available. So no step waits for page faults, and missing memory is found
/// before the run.
[[nodiscard]] MemorySpace& host_memory();

/// Addresses without memory, for a rehearsal without data. Reads and writes crash.
[[nodiscard]] MemorySpace& bare_addresses();

}  // namespace echelon
