#include "cuda/ops/host_staging.h"

#include <algorithm>
#include <cstring>

namespace echelon::cuda {

HostStaging::~HostStaging() {
  for (Slot& slot : slots_)
    if (slot.bytes != nullptr) cudaFreeHost(slot.bytes);
}

void HostStaging::upload(Device& device, std::byte* into, const void* host, std::int64_t num_bytes) {
  const auto* const from = static_cast<const std::byte*>(host);
  for (std::int64_t offset = 0; offset < num_bytes; offset += slot_bytes) {
    Slot& slot = slots_[next_];
    next_ = (next_ + 1) % slots_.size();
    if (slot.bytes == nullptr)
      check(cudaMallocHost(reinterpret_cast<void**>(&slot.bytes), static_cast<std::size_t>(slot_bytes)),
            "pinned memory");
    if (slot.is_used) device.await(slot.copied);
    Stream& stream = device.compute_with_room();
    const auto size = static_cast<std::size_t>(std::min(slot_bytes, num_bytes - offset));
    std::memcpy(slot.bytes, from + offset, size);
    check(cudaMemcpyAsync(into + offset, slot.bytes, size, cudaMemcpyHostToDevice, stream.get()),
          "a copy to the device");
    stream.record(slot.copied);
    slot.is_used = true;
  }
}

}  // namespace echelon::cuda
