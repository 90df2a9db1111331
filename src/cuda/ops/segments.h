// Several stretches of memory that one launch goes over: each block has a part of one of them. For .cu files alone.
#pragma once

#include "cuda/device/launch.h"

#include <cassert>
#include <vector>

namespace echelon::cuda {

/// Passed to a kernel by value.
template <class Segment, std::size_t most>
struct Segments {
  Segment at[most];
  int first_block[most + 1];  // of each, and the number of all blocks
  int count;

  explicit Segments() : first_block{}, count(0) {}

  void add(const Segment& segment, std::int64_t num_blocks) {
    assert(static_cast<std::size_t>(count) < most);
    at[count] = segment;
    first_block[count + 1] = first_block[count] + static_cast<int>(num_blocks);
    ++count;
  }
  [[nodiscard]] std::int64_t num_blocks() const { return first_block[count]; }

  /// The segment of a block.
  [[nodiscard]] __device__ __forceinline__ int of_block(int block) const {
    int low = 0;
    for (int high = count; high - low > 1;) {
      const int middle = (low + high) / 2;
      (first_block[middle] <= block ? low : high) = middle;
    }
    return low;
  }
};

}  // namespace echelon::cuda
