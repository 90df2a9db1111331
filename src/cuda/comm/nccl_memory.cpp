#include "cuda/comm/nccl_memory.h"

#include <exception>

namespace echelon::cuda {

std::byte* NcclMemory::allocate(std::int64_t num_bytes) {
  if (num_bytes == 0) return nullptr;
  void* address = nullptr;
  if (nccl().mem_alloc == nullptr || nccl().mem_free == nullptr) {
    reason_ = fmt::format("{} has no ncclMemAlloc", nccl_version());
    return device_.memory().allocate(num_bytes);
  }
  if (const ncclResult_t result = nccl().mem_alloc(&address, static_cast<std::size_t>(num_bytes));
      result != ncclSuccess) {
    (void)cudaGetLastError();
    reason_ = fmt::format("ncclMemAlloc: {}", nccl().error_string(result));
    return device_.memory().allocate(num_bytes);
  }
  device_.clear(address, num_bytes);
  addresses_.insert(static_cast<std::byte*>(address));
  return static_cast<std::byte*>(address);
}

void NcclMemory::release(std::byte* address, std::int64_t num_bytes) {
  if (std::uncaught_exceptions() > 0) mesh_.give_up();
  mesh_.deregister_arena(address);
  if (addresses_.erase(address) == 0) return device_.memory().release(address, num_bytes);
  (void)cudaDeviceSynchronize();  // ncclMemFree does not wait
  (void)nccl().mem_free(address);
}

}  // namespace echelon::cuda
