// Buffers taken one after the other out of a planned region. The same code measures when it is traced and hands out
// memory when it runs, so what a layer takes equals what the memory plan reserves.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

/// Every planned offset is a multiple of this, so that vectors and cache lines never straddle two buffers.
inline constexpr std::int64_t alignment_bytes = 64;

[[nodiscard]] constexpr std::int64_t aligned(std::int64_t num_bytes) {
  return (num_bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
}

class Stack {
 public:
  /// Measures only: tensors without data, no limit.
  Stack() = default;
  /// The same, but tensors have addresses from `base` on, where no memory is.
  explicit Stack(std::byte* base) : base_(base) {}
  /// Hands out [base, base + capacity_bytes).
  Stack(std::byte* base, std::int64_t capacity_bytes)
      : base_(base), capacity_bytes_(capacity_bytes), measures_(false) {}

  /// An uninitialised tensor after those taken before. Throws Failure if the plan gave less, which is a bug in the
  /// plan.
  [[nodiscard]] Tensor take(DType dtype, Sizes sizes);

  [[nodiscard]] std::int64_t used_bytes() const { return used_bytes_; }
  [[nodiscard]] std::int64_t peak_bytes() const { return peak_bytes_; }
  [[nodiscard]] std::int64_t capacity_bytes() const { return capacity_bytes_; }

  /// Gives back everything taken since `used_bytes()` was `mark`.
  void rewind(std::int64_t mark) { used_bytes_ = mark; }

  /// Gives back at the end of a C++ scope what was taken in it.
  class Scope {
   public:
    explicit Scope(Stack& stack) : stack_(stack), mark_(stack.used_bytes()) {}
    ~Scope() { stack_.rewind(mark_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Stack& stack_;
    std::int64_t mark_;
  };

 private:
  std::byte* base_ = nullptr;
  std::int64_t capacity_bytes_ = 0;
  bool measures_ = true;
  std::int64_t used_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

}  // namespace echelon
