// Where documents end. For .cu files alone.
#pragma once

#include "cuda/device/lanes.h"
#include "cuda/ops/attention_sizes.h"

namespace echelon::cuda {

/// Queries from here on belong to documents that start after this key. All lanes of a warp call it, which look at 32
/// queries at a time.
[[nodiscard]] __device__ __forceinline__ std::int64_t end_seeing(const AttentionSizes& sizes, std::int64_t b,
                                                                 std::int64_t key) {
  if (sizes.starts == nullptr) return sizes.Tq;
  std::int64_t first = 0, last = sizes.Tq;  // the answer is not below `first`, and not above `last`
  while (first < last) {
    const std::int64_t step = (last - first + warp_size - 1) / warp_size,
                       query = first + static_cast<std::int64_t>(threadIdx.x % warp_size) * step;
    const bool is_before = query < last && sizes.first_visible(b, query) <= key;
    const int num_before = __popc(__ballot_sync(whole_warp, is_before));
    if (num_before == 0) return first;
    last = min(last, first + num_before * step);
    first += (num_before - 1) * step + 1;
  }
  return first;
}

}  // namespace echelon::cuda
