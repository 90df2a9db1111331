// How operations over rows divide them: a team of whole warps takes a row, `width` neighbouring values at a time, and
// keeps what it read in registers, so that a row is read once however often it is summed over. For .cu files alone.
#pragma once

#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "tensor/tensor.h"

#include <algorithm>

namespace echelon::cuda {

constexpr int most_team_threads = 512;     // 128 registers for each
constexpr int common_block_threads = 256;  // a block has several teams where rows are short

/// The threads of a row: whole warps. All threads of a block sum together, whether their row exists or not.
template <class A>
class Team {
 public:
  __device__ explicit Team(int num_threads)
      : num_threads_(num_threads),
        thread_(static_cast<int>(threadIdx.x % static_cast<unsigned>(num_threads))),
        index_(static_cast<int>(threadIdx.x / static_cast<unsigned>(num_threads))) {}

  [[nodiscard]] __device__ int index() const { return index_; }
  [[nodiscard]] __device__ int count() const {
    return static_cast<int>(blockDim.x / static_cast<unsigned>(num_threads_));
  }
  [[nodiscard]] __device__ bool is_first() const { return thread_ == 0; }
  /// The first column of this thread's k-th pack.
  template <int width>
  [[nodiscard]] __device__ int column(int k) const {
    return (k * num_threads_ + thread_) * width;
  }

  /// Over the team, the same on all of its threads.
  template <int count>
  __device__ void sum(A (&sums)[count]) {
    static_assert(count <= 2);
    // Two sets: while some threads still read the last sum's, others write the next one's.
    __shared__ A of_warps[2][2][most_team_threads / warp_size];
#pragma unroll
    for (int i = 0; i < count; ++i) sums[i] = warp_sum(sums[i]);
    const int num_warps = num_threads_ / warp_size;
    if (num_warps == 1) return;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    set_ ^= 1;
    if (threadIdx.x % warp_size == 0)
      for (int i = 0; i < count; ++i) of_warps[set_][i][warp] = sums[i];
    __syncthreads();
    for (int i = 0; i < count; ++i) {
      sums[i] = 0;
      for (int other = 0; other < num_warps; ++other) sums[i] += of_warps[set_][i][index_ * num_warps + other];
    }
  }

 private:
  int num_threads_, thread_, index_, set_ = 0;
};

/// How a kernel takes a row: `width` values at a time. A thread keeps `kept` of its packs in registers; 0: rows may be
/// wider than all registers, and are read again from the caches.
template <int width_, int kept_>
struct RowAccess {
  static constexpr int width = width_, kept = kept_;
  static constexpr bool keeps = kept > 0;
};
template <class Access, class T>
using Kept = PackedWords<T, Access::width>[Access::keeps ? Access::kept : 1];

/// f(k, column) for the packs of this thread; k is where they are kept.
template <class Access, class A, class F>
__device__ __forceinline__ void for_packs(const Team<A>& team, int D, F&& f) {
  if constexpr (Access::keeps) {
#pragma unroll
    for (int k = 0; k < Access::kept; ++k)
      if (const int column = team.template column<Access::width>(k); column < D) f(k, column);
  } else {
#pragma unroll 1
    for (int k = 0, column = team.template column<Access::width>(0); column < D;
         column = team.template column<Access::width>(++k))
      f(0, column);
  }
}

/// How the rows of a matrix are divided over teams, and these over blocks.
struct Teams {
  int threads, per_block;

  Teams(std::int64_t D, int numbers_of_thread) {
    const std::int64_t warps = std::clamp<std::int64_t>(blocks_for(D, std::int64_t{warp_size} * numbers_of_thread), 1,
                                                        most_team_threads / warp_size);
    threads = static_cast<int>(warps) * warp_size;
    per_block = std::max(1, common_block_threads / threads);
  }
  [[nodiscard]] int block_threads() const { return threads * per_block; }
};

/// f(RowAccess, Teams) for rows of `D` numbers of which a thread is to keep up to `kept` packs.
template <class T, int kept, class F>
void visit_row_access(std::int64_t D, F&& f) {
  constexpr int width = pack_size<T>;
  if (D % width == 0 && D <= std::int64_t{most_team_threads} * kept * width)
    f(RowAccess<width, kept>(), Teams(D, width * kept));
  else
    f(RowAccess<1, 0>(), Teams(D, 4));
}

[[nodiscard]] inline std::int64_t num_rows_of(const Tensor& x) {
  return x.size(-1) == 0 ? 0 : x.num_elements() / x.size(-1);
}

}  // namespace echelon::cuda
