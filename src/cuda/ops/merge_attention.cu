// Attention to two parts of the keys joined by their log-sum-exps (formula: ops/ops.h). Bound by memory: a warp has a
// row, in accesses of 16 bytes.
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256;

template <class T, class O>
struct Merge {
  O* out;
  Wide<T>* lse;
  const T* part;
  const Wide<T>* part_lse;
  std::int64_t num_rows, seq_len, H, C;
};

template <class T, class O, int width>
__global__ void __launch_bounds__(block_threads) merge_kernel(Merge<T, O> of) {
  using W = Wide<T>;
  // Of [B, T, H]
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x) / warp_size;
  if (row >= of.num_rows) return;
  const std::int64_t h = row % of.H, i = row / of.H % of.seq_len, b = row / of.H / of.seq_len,
                     statistic = (b * of.H + h) * of.seq_len + i;
  const W lse = of.lse[statistic], part_lse = of.part_lse[statistic], max = part_lse > lse ? part_lse : lse;
  if (lse == W(-INFINITY) && part_lse == W(-INFINITY)) return;
  const W merged = max + log(exp(lse - max) + exp(part_lse - max)), of_out = exp(lse - merged),
          of_part = exp(part_lse - merged);
  for (std::int64_t c = threadIdx.x % warp_size * width; c < of.C; c += warp_size * width) {
    Pack<W, width> out = widen(load_pack<width>(of.out + row * of.C + c));
    const Pack<W, width> part = widen(load_pack<width>(of.part + row * of.C + c));
#pragma unroll
    for (int n = 0; n < width; ++n) out.at[n] = of_out * out.at[n] + of_part * part.at[n];
    store_pack(of.out + row * of.C + c, narrow<O>(out));
  }
  __syncwarp();  // all lanes have read it
  if (threadIdx.x % warp_size == 0) of.lse[statistic] = merged;
}

}  // namespace

void CudaOps::compute(const MergeAttentionArgs& args) {
  if (args.part.num_elements() == 0) return;
  visit_numbers_and_gradient(args.part.dtype, args.out.dtype, [&]<class T, class O>(T, O) {
    using D = on_device<T>;
    const Merge<D, on_device<O>> merge = {.out = numbers<O>(args.out),
                                          .lse = numbers<Wide<D>>(args.lse),
                                          .part = numbers<T>(args.part),
                                          .part_lse = numbers<Wide<D>>(args.part_lse),
                                          .num_rows = args.part.size(0) * args.part.size(1) * args.part.size(2),
                                          .seq_len = args.part.size(1),
                                          .H = args.part.size(2),
                                          .C = args.part.size(3)};
    visit_row_width<T>(merge.C, [&]<int width>(std::integral_constant<int, width>) {
      launch({.num_blocks = blocks_for(merge.num_rows, block_threads / warp_size),
              .num_threads = block_threads,
              .stream = stream()},
             merge_kernel<D, on_device<O>, width>, merge);
    });
  });
}

}  // namespace echelon::cuda
