// How many kernels and copies operations are on the CUDA backend, from their arguments alone: what a host issues for
// them, and the bytes of their operands. The rules are those of src/cuda/ops, which a test compares with what the
// emulated device receives.
#pragma once

#include "ops/gpu/joined_operations.h"
#include "ops/gpu/paired_operations.h"
#include "ops/gpu/product_calls.h"
#include "ops/operation.h"

#include <array>
#include <cstdint>

namespace echelon::cuda {

/// Of an operation by itself, in our own attention kernels.
[[nodiscard]] std::int64_t num_gpu_kernels(const Operation& operation);

/// Counts those of a sequence of operations on one device. Matmuls are fused with what follows them, if the library has
/// algorithms for that (ops/gpu/product_calls.h). Fills, rotations, sums of squares and
/// updates are joined (ops/gpu/joined_operations.h), and others paired (ops/gpu/paired_operations.h), so tensors need
/// addresses, but no memory.
class GpuKernelCount {
 public:
  GpuKernelCount();
  void add(const Operation& operation);
  /// What was delayed has been enqueued.
  void flush();
  /// Without what is delayed. Bytes are those of ops/cost.h, less what fusing saves: each call reads its operands once.
  struct Counted {
    std::int64_t kernels = 0, bytes = 0;
  };
  [[nodiscard]] Counted of(OpKind kind) const { return counts_[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] Counted total() const { return total_; }

 private:
  [[nodiscard]] bool is_fused(const Operation& operation);
  void release_joined();
  void release_paired();
  void count(OpKind kind, std::int64_t kernels, std::int64_t bytes);
  void count(const ProductCall& call);

  std::array<Counted, num_op_kinds> counts_ = {};
  Counted total_ = {};
  ProductCalls products_;
  JoinedOperations joined_;
  PairedOperations paired_;
};

}  // namespace echelon::cuda
