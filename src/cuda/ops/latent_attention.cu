// Keys and values of multi-head latent attention (formulas: ops/operations/latent_attention.h). Bound by memory: a
// thread has a column of a row.
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256;

struct LatentSizes {
  std::int64_t num_tokens, H, C, R, W;  // W = P + V
};

__device__ __forceinline__ std::int64_t this_index() {
  return static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
}

template <class T>
__global__ void __launch_bounds__(block_threads) expand_kernel(const T* __restrict__ x, const T* __restrict__ rope,
                                                               T* __restrict__ k, T* __restrict__ v, LatentSizes of) {
  const std::int64_t i = this_index();
  if (i >= of.num_tokens * of.H * of.C) return;
  const std::int64_t row = i / of.C, c = i % of.C, P = of.C - of.R;
  k[i] = c < of.R ? rope[row / of.H * of.R + c] : x[row * of.W + c - of.R];
  v[i] = P + c < of.W ? x[row * of.W + P + c] : T{};
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    expand_backward_kernel(const T* __restrict__ dk, const T* __restrict__ dv, T* __restrict__ dx, LatentSizes of) {
  const std::int64_t i = this_index();
  if (i >= of.num_tokens * of.H * of.W) return;
  const std::int64_t row = i / of.W, c = i % of.W, P = of.C - of.R;
  dx[i] = c < P ? dk[row * of.C + of.R + c] : dv[row * of.C + c - P];
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    sum_heads_kernel(const T* __restrict__ dk, T* __restrict__ drope, LatentSizes of) {
  const std::int64_t i = this_index();
  if (i >= of.num_tokens * of.R) return;
  const std::int64_t token = i / of.R, c = i % of.R;
  Wide<T> sum = 0;
  for (std::int64_t h = 0; h < of.H; ++h) sum += widen(dk[(token * of.H + h) * of.C + c]);
  drope[i] = narrow<T>(sum);
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    resize_kernel(const T* __restrict__ x, T* __restrict__ y, std::int64_t count, std::int64_t from,
                  std::int64_t width) {
  const std::int64_t i = this_index();
  if (i >= count) return;
  const std::int64_t c = i % width;
  y[i] = c < from ? x[i / width * from + c] : T{};
}

Launch launch_of(std::int64_t count, cudaStream_t stream) {
  return {.num_blocks = blocks_for(count, block_threads), .num_threads = block_threads, .stream = stream};
}

}  // namespace

void CudaOps::compute(const ExpandLatentsArgs& args) {
  const LatentSizes of = {args.k.size(0), args.k.size(1), args.k.size(2), args.rope.size(1), args.x.size(2)};
  if (args.k.num_elements() == 0) return;
  visit_numbers(args.k.dtype, [&]<class T>(T) {
    launch(launch_of(args.k.num_elements(), stream()), expand_kernel<on_device<T>>, numbers<T>(args.x),
           numbers<T>(args.rope), numbers<T>(args.k), numbers<T>(args.v), of);
  });
}

void CudaOps::compute(const ExpandLatentsBackwardArgs& args) {
  const LatentSizes of = {args.dk.size(0), args.dk.size(1), args.dk.size(2), args.drope.size(1), args.dx.size(2)};
  visit_numbers(args.dk.dtype, [&]<class T>(T) {
    if (args.dx.num_elements() > 0)
      launch(launch_of(args.dx.num_elements(), stream()), expand_backward_kernel<on_device<T>>, numbers<T>(args.dk),
             numbers<T>(args.dv), numbers<T>(args.dx), of);
    if (args.drope.num_elements() > 0)
      launch(launch_of(args.drope.num_elements(), stream()), sum_heads_kernel<on_device<T>>, numbers<T>(args.dk),
             numbers<T>(args.drope), of);
  });
}

void CudaOps::compute(const ResizeRowsArgs& args) {
  const std::int64_t count = args.y.num_elements();
  if (count == 0) return;
  visit_numbers(args.x.dtype, [&]<class T>(T) {
    launch(launch_of(count, stream()), resize_kernel<on_device<T>>, numbers<T>(args.x), numbers<T>(args.y), count,
           args.x.size(2), args.y.size(2));
  });
}

}  // namespace echelon::cuda
