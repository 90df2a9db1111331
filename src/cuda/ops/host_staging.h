// Pinned host memory that stages uploads, so that the caller's memory is free again without waiting for the device.
#pragma once

#include "cuda/device/device.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace echelon::cuda {

class HostStaging {
 public:
  HostStaging() = default;
  ~HostStaging();
  HostStaging(const HostStaging&) = delete;
  HostStaging& operator=(const HostStaging&) = delete;

  /// Enqueues the copy on the compute stream; `host` may be reused when it returns.
  void upload(Device& device, std::byte* into, const void* host, std::int64_t num_bytes);

 private:
  static constexpr std::int64_t slot_bytes = std::int64_t{4} << 20;
  struct Slot {
    std::byte* bytes = nullptr;  // of slot_bytes, once used
    Event copied;
    bool is_used = false;
  };
  std::array<Slot, 4> slots_;
  std::size_t next_ = 0;
};

}  // namespace echelon::cuda
