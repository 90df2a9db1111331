// Delays matmuls until the next operation is known, for fusion (product_calls.h). So layers need not know what a
// library can fuse. Every other operation, and code that waits for results, first gets the stream from flush(). What is
// not fused, and why: docs/internals/gpu.md.
#pragma once

#include "cuda/ops/products.h"
#include "ops/gpu/product_calls.h"

#include <functional>

namespace echelon::cuda {

class PendingProduct {
 public:
  /// Enqueues dbias[i] += row i of sums, which are at most ProductCalls::most_waiting.
  using AddSums = std::function<void(const std::vector<Tensor>& dbias, const Tensor& sums)>;
  PendingProduct(Products& products, AddSums add_sums);

  /// Delays this matmul; those before are enqueued, unless it may become one batch with them.
  void hold(const MatmulArgs& args);
  /// Enqueues what is held.
  void flush();

  /// True if y += bias, dbias += column sums of dy, or out = a + b is done as part of a matmul that is held.
  [[nodiscard]] bool add_bias(const Tensor& y_ND, const Tensor& bias_D);
  [[nodiscard]] bool column_sums(const Tensor& dy_ND, const Tensor& dbias_D);
  [[nodiscard]] bool add(const Tensor& out, const Tensor& a, const Tensor& b);

  [[nodiscard]] std::int64_t num_fused() const { return num_fused_; }

 private:
  [[nodiscard]] bool counted(bool is_fused);

  Products& products_;
  AddSums add_sums_;
  ProductCalls calls_;
  std::int64_t num_fused_ = 0;
};

}  // namespace echelon::cuda
