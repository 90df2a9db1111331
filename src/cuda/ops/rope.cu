// Rotary positions: every pair (x[i], x[i + C/2]) of a head is turned by its position's angle, both loaded before
// either is stored, so y may be x. Bound by memory: a thread turns the same columns of several heads, for which it
// reads its angles once.
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256, heads_of_thread = 4;

template <class T>
struct Rotation {
  const T* x;  // [B, T, H, C], flat but for tokens and heads
  T* y;
  const Wide<T>*cos, *sin;  // from the first position on
  Wide<T> sign;
  std::int64_t num_tokens, seq_len;
  int H, half;  // half: C / 2
};

/// A thread takes `width` pairs of the heads h, h + S, h + 2 S, ... of a token, S of which together have all heads.
template <class T, int width>
__global__ void __launch_bounds__(block_threads) rope_kernel(Rotation<T> of, int S) {
  using A = Wide<T>;
  const int packs = of.half / width;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x,
                     slice = thread / packs, token = slice / S;
  const int column = static_cast<int>(thread % packs) * width, first_head = static_cast<int>(slice % S);
  if (token >= of.num_tokens) return;
  PackedWords<T, width> left[heads_of_thread], right[heads_of_thread];
  const std::int64_t start = token * of.H * 2 * of.half + column;
#pragma unroll
  for (int k = 0; k < heads_of_thread; ++k)
    if (const int head = first_head + k * S; head < of.H) {
      left[k] = load_words<width>(of.x + start + std::int64_t{head} * 2 * of.half);
      right[k] = load_words<width>(of.x + start + std::int64_t{head} * 2 * of.half + of.half);
    }
  const std::int64_t angles = token % of.seq_len * of.half + column;
  const Pack<A, width> cos = load_pack<width>(of.cos + angles), sin = load_pack<width>(of.sin + angles);
#pragma unroll
  for (int k = 0; k < heads_of_thread; ++k) {
    const int head = first_head + k * S;
    if (head >= of.H) break;
    const Pack<A, width> x1 = widen(unpack(left[k])), x2 = widen(unpack(right[k]));
    Pack<A, width> y1, y2;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      y1.at[i] = x1.at[i] * cos.at[i] - x2.at[i] * (of.sign * sin.at[i]);
      y2.at[i] = x2.at[i] * cos.at[i] + x1.at[i] * (of.sign * sin.at[i]);
    }
    store_pack(of.y + start + std::int64_t{head} * 2 * of.half, narrow<T>(y1));
    store_pack(of.y + start + std::int64_t{head} * 2 * of.half + of.half, narrow<T>(y2));
  }
}

}  // namespace

void CudaOps::compute(const RopeArgs& args) {
  const std::int64_t num_tokens = args.x.size(0) * args.x.size(1), H = args.x.size(2), half = args.x.size(3) / 2;
  if (args.x.num_elements() == 0) return;
  visit_numbers(args.x.dtype, [&]<class T>(T) {
    using A = Wide<on_device<T>>;
    const Rotation<on_device<T>> rotation = {.x = numbers<T>(args.x),
                                             .y = numbers<T>(args.y),
                                             .cos = numbers<A>(args.cos) + args.first_position * half,
                                             .sin = numbers<A>(args.sin) + args.first_position * half,
                                             .sign = args.inverse ? A{-1} : A{1},
                                             .num_tokens = num_tokens,
                                             .seq_len = args.x.size(1),
                                             .H = static_cast<int>(H),
                                             .half = static_cast<int>(half)};
    const std::int64_t S = blocks_for(H, heads_of_thread);
    visit_row_width<T>(half, [&]<int width>(std::integral_constant<int, width>) {
      launch({.num_blocks = blocks_for(num_tokens * S * (half / width), block_threads),
              .num_threads = block_threads,
              .stream = stream()},
             rope_kernel<on_device<T>, width>, rotation, static_cast<int>(S));
    });
  });
}

}  // namespace echelon::cuda
