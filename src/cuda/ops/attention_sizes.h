// The addresses of the vectors of a head, and the keys that a query sees. For kernels alone: attention_documents.h.
#pragma once

#include "ops/operations/attention.h"

#include <cuda_runtime.h>

namespace echelon::cuda {

/// Vectors of one head at successive positions.
template <class T>
struct Rows {
  T* first;
  std::int64_t stride;  // in elements
  std::int64_t count;   // those that exist from here on

  [[nodiscard]] __device__ __forceinline__ Rows from(std::int64_t i) const {
    return {first + i * stride, stride, count - i};
  }
};

struct AttentionSizes {
  std::int64_t B, Tq, Tk, H, K, C;
  std::int64_t group, first_head;
  const std::int32_t *begins, *ends;  // of the mask; null: from the first key on, and causal

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
  [[nodiscard]] __device__ __forceinline__ std::int64_t kv_head(std::int64_t h) const {
    return (h + first_head) / group;
  }
  /// The heads that read a kv head: from first_of(kv_head) up to first_of(kv_head + 1).
  [[nodiscard]] __device__ __forceinline__ std::int64_t first_of(std::int64_t kv_head) const {
    const std::int64_t h = kv_head * group - first_head;
    return h < 0 ? 0 : h > H ? H : h;
  }
  /// Query i of a causal mask sees the keys below this, if there are so many.
  [[nodiscard]] __device__ __forceinline__ std::int64_t num_visible(std::int64_t i) const { return i + Tk - Tq + 1; }
  /// The first query of a causal mask that sees this key or, if there is none that does, one after it.
  [[nodiscard]] __device__ __forceinline__ std::int64_t first_seeing(std::int64_t key) const {
    return key > Tk - Tq ? key - (Tk - Tq) : 0;
  }
  /// Of any mask: query i sees the existing keys from first_visible to end_visible. Queries past the end see what the
  /// last one sees.
  [[nodiscard]] __device__ __forceinline__ std::int64_t first_visible(std::int64_t b, std::int64_t i) const {
    return begins == nullptr ? 0 : begins[b * Tq + (i < Tq ? i : Tq - 1)];
  }
  [[nodiscard]] __device__ __forceinline__ std::int64_t end_visible(std::int64_t b, std::int64_t i) const {
    if (ends != nullptr) return ends[b * Tq + (i < Tq ? i : Tq - 1)];
    const std::int64_t end = num_visible(i);
    return end < Tk ? end : Tk;
  }
};

/// Of AttentionArgs or AttentionBackwardArgs.
template <class Args>
[[nodiscard]] AttentionSizes sizes_of(const Args& args) {
  const Tensor &q = args.q, &k = args.k;
  return {.B = q.size(0),
          .Tq = q.size(1),
          .Tk = k.size(1),
          .H = q.size(2),
          .K = k.size(2),
          .C = q.size(3),
          .group = args.group,
          .first_head = args.first_head,
          .begins = reinterpret_cast<const std::int32_t*>(args.mask.begin.data),
          .ends = reinterpret_cast<const std::int32_t*>(args.mask.end.data)};
}

}  // namespace echelon::cuda
