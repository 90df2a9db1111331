// Where the vectors of a head lie, and which keys a query sees. For .cu files alone.
#pragma once

#include "ops/ops.h"

#include <cuda_runtime.h>

namespace echelon::cuda {

/// Vectors of one head at successive positions.
template <class T>
struct Rows {
  T* first;
  std::int64_t stride;  // in elements
  std::int64_t count;   // those that exist from here on

  [[nodiscard]] __device__ __forceinline__ Rows from(std::int64_t i) const { return {first + i * stride, stride, count - i}; }
};

struct AttentionSizes {
  std::int64_t B, Tq, Tk, H, K, C;
  std::int64_t group, first_head;

  /// The k, v, dk or dv [B, Tk, K, C] of one kv head.
  template <class T>
  [[nodiscard]] __device__ __forceinline__ Rows<T> keys(T* x, std::int64_t b, std::int64_t kv_head) const {
    return {x + (b * Tk * K + kv_head) * C, K * C, Tk};
  }
  /// The q, out, dout or dq [B, Tq, H, C] of one head.
  template <class T>
  [[nodiscard]] __device__ __forceinline__ Rows<T> queries(T* x, std::int64_t b, std::int64_t h) const {
    return {x + (b * Tq * H + h) * C, H * C, Tq};
  }
  /// The lse or delta [B, H, Tq] of one head.
  template <class T>
  [[nodiscard]] __device__ __forceinline__ T* statistics(T* x, std::int64_t b, std::int64_t h) const {
    return x + (b * H + h) * Tq;
  }
  [[nodiscard]] __device__ __forceinline__ std::int64_t kv_head(std::int64_t h) const { return (h + first_head) / group; }
  /// The heads that read a kv head: from first_of(kv_head) up to first_of(kv_head + 1).
  [[nodiscard]] __device__ __forceinline__ std::int64_t first_of(std::int64_t kv_head) const {
    const std::int64_t h = kv_head * group - first_head;
    return h < 0 ? 0 : h > H ? H : h;
  }
  /// Query i sees the keys below this.
  [[nodiscard]] __device__ __forceinline__ std::int64_t num_visible(std::int64_t i) const { return i + Tk - Tq + 1; }
};

[[nodiscard]] inline AttentionSizes sizes_of(const Tensor& q, const Tensor& k, std::int64_t group, std::int64_t first_head) {
  return {q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), group, first_head};
}

}  // namespace echelon::cuda
