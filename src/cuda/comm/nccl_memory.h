// Device memory that NCCL allocates, so that its kernels may read and write peers' parts of it without a copy: for the
// arenas of ranks that use NCCL.
#pragma once

#include "cuda/comm/nccl_mesh.h"

#include <set>
#include <string>

namespace echelon::cuda {

class NcclMemory final : public MemorySpace {
 public:
  NcclMemory(NcclMesh& mesh, Device& device) : mesh_(mesh), device_(device) {}
  /// By ncclMemAlloc, which rounds up to pages of some MiB; as the device does where that does not work.
  [[nodiscard]] std::byte* allocate(std::int64_t num_bytes) override;
  /// Ends its registration, unless its communicators have ended.
  void release(std::byte* address, std::int64_t num_bytes) override;
  /// Whether NCCL allocated it.
  [[nodiscard]] bool is_of_nccl(const std::byte* address) const { return addresses_.contains(address); }
  /// Why it did not, at the last time; empty: it always did.
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  NcclMesh& mesh_;
  Device& device_;
  std::set<const std::byte*> addresses_;
  std::string reason_;
};

}  // namespace echelon::cuda
