// How many kernels and copies operations are on the CUDA backend, from their arguments alone: what a host issues for
// them. The rules are those of src/cuda/ops, which a test compares with what the emulated device receives.
#pragma once

#include "ops/operation.h"

#include <cstdint>
#include <optional>

namespace echelon::cuda {

/// Of an operation by itself, in our own attention kernels. Float8 operands, whose rounding takes more, are not
/// covered.
[[nodiscard]] std::int64_t num_gpu_kernels(const Operation& operation);

/// Counts those of a sequence of operations on one device. A bias that follows its matmul and a bias gradient that
/// follows one of the same dy are fused with it (cuda/ops/pending_product.h). Sums of squares and updates of neighbours
/// in memory are joined (cuda/ops/joined_optimizer.h), so tensors need addresses, but no memory.
class GpuKernelCount {
 public:
  void add(const Operation& operation);
  /// What was delayed has been enqueued.
  void flush();
  [[nodiscard]] std::int64_t total() const;

 private:
  [[nodiscard]] bool is_fused(const Operation& operation) const;
  [[nodiscard]] bool is_joined(const Operation& operation);
  void hold(const Operation& operation);

  std::int64_t total_ = 0;
  std::optional<MatmulArgs> product_;
  std::optional<SumOfSquaresArgs> squares_;
  std::optional<AdamWArgs> update_;
};

}  // namespace echelon::cuda
