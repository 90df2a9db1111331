// Where an arena's bytes lie: the host's memory, addresses without memory, or a device's.
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

/// All pages are put in place at once, large ones if the system gives them, so that no step waits for it and memory
/// that is not there is missed before the run.
[[nodiscard]] MemorySpace& host_memory();

/// Addresses alone, for a rehearsal without numbers. Whoever reads or writes there crashes.
[[nodiscard]] MemorySpace& bare_addresses();

}  // namespace echelon
