// The one allocation of a rank in a memory space. Its size is the memory plan's peak; the engine has no other
// allocator.
#pragma once

#include "tensor/memory_space.h"
#include "tensor/stack.h"

#include <cstddef>
#include <cstdint>

namespace echelon {

class Arena {
 public:
  /// `space` must outlive the arena. Throws Failure when it has not enough.
  explicit Arena(std::int64_t num_bytes, MemorySpace& space = host_memory());
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] std::int64_t num_bytes() const { return num_bytes_; }
  [[nodiscard]] Stack region(std::int64_t offset, std::int64_t num_bytes) const;
  [[nodiscard]] Tensor tensor(std::int64_t offset, DType dtype, Sizes sizes) const;

 private:
  MemorySpace& space_;
  std::byte* base_ = nullptr;
  std::int64_t num_bytes_ = 0;
};

}  // namespace echelon
