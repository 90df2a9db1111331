// Delays the last matmul until the next operation is known, for fusion (cuBLASLt epilogues). A bias that is added to
// its result, or the bias gradient from the dy that it read, then costs no pass over memory. So layers need not know
// what a library can fuse.
//
//     y = x w^T;    y += b                  one matmul with the epilogue `bias`
//     dw += dy^T x; db += column sums of dy one with the epilogue `bias_gradient`, whose sums are then added to db
//
// Every other operation, and code that waits for results, first gets the stream from flush(). What is not fused, and
// why: docs/internals/gpu.md.
#pragma once

#include "cuda/ops/products.h"

#include <optional>

namespace echelon::cuda {

class PendingProduct {
 public:
  explicit PendingProduct(Products& products) : products_(products) {}

  /// Delays this matmul; the one before is enqueued.
  void hold(const MatmulArgs& args);
  /// Enqueues what is held.
  void flush();

  /// True if y += bias was done as part of the matmul that made y, which is enqueued now.
  [[nodiscard]] bool add_bias(Tensor y_ND, Tensor bias_D);
  /// True if sums_D = column sums of dy were fused into the matmul that read dy, which is enqueued now.
  [[nodiscard]] bool column_sums(Tensor dy_ND, Tensor sums_D);

  [[nodiscard]] std::int64_t num_fused() const { return num_fused_; }

 private:
  [[nodiscard]] bool fuse(Epilogue epilogue, Tensor vector);

  Products& products_;
  std::optional<MatmulArgs> held_;
  std::int64_t num_fused_ = 0;
};

}  // namespace echelon::cuda
