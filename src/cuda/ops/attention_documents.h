// Which queries see a key. For .cu files alone.
#pragma once

#include "cuda/device/lanes.h"
#include "cuda/ops/attention_sizes.h"

namespace echelon::cuda {

/// The first of Tq queries of which `is_before` does not hold, which holds of no query after one of which it does not.
/// All lanes of a warp call it, which look at 32 queries at a time.
template <class F>
[[nodiscard]] __device__ __forceinline__ std::int64_t first_query_not(F is_before, std::int64_t Tq) {
  std::int64_t first = 0, last = Tq;  // the answer is not below `first`, and not above `last`
  while (first < last) {
    const std::int64_t step = (last - first + warp_size - 1) / warp_size,
                       query = first + static_cast<std::int64_t>(threadIdx.x % warp_size) * step;
    const int num_before = __popc(__ballot_sync(whole_warp, query < last && is_before(query)));
    if (num_before == 0) return first;
    last = min(last, first + num_before * step);
    first += (num_before - 1) * step + 1;
  }
  return first;
}

/// The ranges of queries from here on start after this key.
[[nodiscard]] __device__ __forceinline__ std::int64_t end_seeing(const AttentionSizes& sizes, std::int64_t b,
                                                                 std::int64_t key) {
  if (sizes.begins == nullptr) return sizes.Tq;
  return first_query_not([&](std::int64_t i) { return sizes.first_visible(b, i) <= key; }, sizes.Tq);
}
/// The ranges of queries before this one end at or before this key.
[[nodiscard]] __device__ __forceinline__ std::int64_t first_seeing(const AttentionSizes& sizes, std::int64_t b,
                                                                   std::int64_t key) {
  if (sizes.ends == nullptr) return sizes.first_seeing(key);
  return first_query_not([&](std::int64_t i) { return sizes.end_visible(b, i) <= key; }, sizes.Tq);
}

}  // namespace echelon::cuda
