#include "cuda/ops/unseen_rows.h"

#include "cuda/device/launch.h"
#include "cuda/ops/numbers.h"

#include <limits>

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256;

/// Elements [first, end) of each run of `stride` in `out`; num_runs of them.
template <class T>
__global__ void __launch_bounds__(block_threads) fill_runs_kernel(T* out, std::int64_t num_runs, std::int64_t stride,
                                                                  std::int64_t first, std::int64_t end, T value) {
  const std::int64_t i = std::int64_t{blockIdx.x} * block_threads + threadIdx.x, count = end - first;
  if (i < num_runs * count) out[i / count * stride + first + i % count] = value;
}

/// Rows [first, end) of x [B, rows, ...].
template <class T>
void fill_rows(const Tensor& x, std::int64_t num_runs, std::int64_t first, std::int64_t end, on_device<T> value,
               std::int64_t num_rows, cudaStream_t stream) {
  if (num_runs == 0 || num_rows == 0 || first == end) return;
  const std::int64_t stride = x.num_elements() / num_runs, row = stride / num_rows;
  launch({.num_blocks = blocks_for(num_runs * (end - first) * row, block_threads),
          .num_threads = block_threads,
          .stream = stream},
         fill_runs_kernel<on_device<T>>, numbers<T>(x), num_runs, stride, first * row, end * row, value);
}

/// Rows [first, end) of x [B, rows, heads, C] become zeros.
void clear_rows(const Tensor& x, std::int64_t first, std::int64_t end, cudaStream_t stream) {
  fill_rows<bfloat16>(x, x.size(0), first, end, on_device<bfloat16>(0.0F), x.size(1), stream);
}

}  // namespace

void fill_unseen(const AttentionArgs& args, cudaStream_t stream) {
  const MaskShape& shape = args.mask.shape;
  if (shape.kind == MaskShape::Kind::ranges) return;
  clear_rows(args.out, 0, shape.first_query, stream);
  fill_rows<float>(args.lse, args.lse.size(0) * args.lse.size(1), 0, shape.first_query,
                   -std::numeric_limits<float>::infinity(), args.lse.size(2), stream);
}

void fill_unseen(const AttentionBackwardArgs& args, cudaStream_t stream) {
  const MaskShape& shape = args.mask.shape;
  if (shape.kind == MaskShape::Kind::ranges) return;
  clear_rows(args.dq, 0, shape.first_query, stream);
  for (const Tensor& x : {args.dk, args.dv}) clear_rows(x, shape.end_key, x.size(1), stream);
}

}  // namespace echelon::cuda
