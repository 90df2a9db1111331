// The one allocation of a rank in a memory space. Its size is the memory plan's peak; the engine has no other allocator.
#pragma once

#include "tensor/stack.h"

#include <cstddef>
#include <cstdint>

namespace echelon {

/// Zero-filled host memory, aligned to alignment_bytes, with all its pages in place; large ones ask for huge pages. Throws Failure when the system has not
/// enough.
class Arena {
 public:
  /// `never`: addresses alone, for a rehearsal without numbers. Whoever reads or writes there crashes.
  enum class Pages : std::uint8_t { in_place, never };
  explicit Arena(std::int64_t num_bytes, Pages pages = Pages::in_place);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] std::int64_t num_bytes() const { return num_bytes_; }
  [[nodiscard]] Stack region(std::int64_t offset, std::int64_t num_bytes) const;
  [[nodiscard]] Tensor tensor(std::int64_t offset, DType dtype, Sizes sizes) const;

 private:
  void populate();

  std::byte* base_ = nullptr;
  std::int64_t num_bytes_ = 0;
};

}  // namespace echelon
