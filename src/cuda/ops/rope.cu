// Rotary positions: every pair (x[i], x[i + R/2]) of a head is turned by its position's angle, both loaded before
// either is stored, so y may be x. One launch for q and k. Bound by memory: a thread turns the same columns of several
// heads, for which it reads or computes its angles once.
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/amax.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"
#include "cuda/ops/segments.h"
#include "ops/gpu/joined_operations.h"

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256, heads_of_thread = 4;

template <class T>
struct Heads {
  const T* x;  // [B, T, H, C], flat but for tokens and heads
  T* y;
  int H, S;  // S: threads that together have all heads of a token
  Amaxes<1> amaxes;
};
template <class T>
using AllHeads = Segments<Heads<T>, most_segments<RopeArgs>>;

template <class T>
struct Rotation {
  const Wide<T>*cos, *sin;        // from the first position on; null:
  const std::int32_t* positions;  // of the tokens,
  const double* frequencies;      // times which they give the angles
  double scale, growth;           // of their cosines and sines
  std::int64_t period;            // of positions that share a scale
  Wide<T> sign;
  std::int64_t num_tokens, seq_len;
  int half, head_dim;  // R / 2, C
};

template <class A, int width>
struct Turn {
  Pack<A, width> cos, sin;
};

template <int width, class T>
__device__ Turn<Wide<T>, width> turn_of(const Rotation<T>& by, std::int64_t token, int column) {
  if (by.positions == nullptr) {
    const std::int64_t angles = token % by.seq_len * by.half + column;
    return {load_pack<width>(by.cos + angles), load_pack<width>(by.sin + angles)};
  }
  Turn<Wide<T>, width> turn;
  const std::int64_t position = by.positions[token];
  const double scale =
      by.growth == 0 ? by.scale : by.scale * (1 + by.growth * log(1.0 + static_cast<double>(position / by.period)));
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const double angle = static_cast<double>(position) * by.frequencies[column + i];
    turn.cos.at[i] = static_cast<Wide<T>>(scale * cos(angle));
    turn.sin.at[i] = static_cast<Wide<T>>(scale * sin(angle));
  }
  return turn;
}

/// A thread takes `width` pairs of the heads h, h + S, h + 2 S, ... of a token.
template <class T, int width>
__global__ void __launch_bounds__(block_threads) rope_kernel(AllHeads<T> all, Rotation<T> by) {
  using A = Wide<T>;
  const int block = static_cast<int>(blockIdx.x), segment = all.of_block(block), packs = by.half / width;
  const Heads<T>& of = all.at[segment];
  const std::int64_t thread = std::int64_t{block - all.first_block[segment]} * block_threads + threadIdx.x,
                     slice = thread / packs, token = slice / of.S;
  const int column = static_cast<int>(thread % packs) * width, first_head = static_cast<int>(slice % of.S),
            H = token < by.num_tokens ? of.H : 0;
  unsigned largest[1] = {};
  PackedWords<T, width> left[heads_of_thread], right[heads_of_thread];
  const std::int64_t start = token * of.H * by.head_dim + column;
#pragma unroll
  for (int k = 0; k < heads_of_thread; ++k)
    if (const int head = first_head + k * of.S; head < H) {
      left[k] = load_words<width>(of.x + start + std::int64_t{head} * by.head_dim);
      right[k] = load_words<width>(of.x + start + std::int64_t{head} * by.head_dim + by.half);
    }
  const Turn<A, width> turn = H > 0 ? turn_of<width>(by, token, column) : Turn<A, width>();
#pragma unroll
  for (int k = 0; k < heads_of_thread; ++k) {
    const int head = first_head + k * of.S;
    if (head >= H) break;
    const Pack<A, width> x1 = widen(unpack(left[k])), x2 = widen(unpack(right[k]));
    Pack<A, width> y1, y2;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      y1.at[i] = x1.at[i] * turn.cos.at[i] - x2.at[i] * (by.sign * turn.sin.at[i]);
      y2.at[i] = x2.at[i] * turn.cos.at[i] + x1.at[i] * (by.sign * turn.sin.at[i]);
    }
    const Pack<T, width> first = narrow<T>(y1), second = narrow<T>(y2);
    store_pack(of.y + start + std::int64_t{head} * by.head_dim, first);
    store_pack(of.y + start + std::int64_t{head} * by.head_dim + by.half, second);
    largest[0] = larger_of(larger_of(largest[0], first), second);
  }
  leave_amaxes(of.amaxes, largest, static_cast<unsigned>(all.first_block[segment + 1] - all.first_block[segment]));
}

}  // namespace

void CudaOps::compute(const RopeArgs& args) { compute_joined(std::vector{args}); }

void CudaOps::compute_joined(const std::vector<RopeArgs>& held) {
  const RopeArgs& first = held.front();
  const ComputeLane lane = this->lane();
  const std::int64_t num_tokens = first.x.size(0) * first.x.size(1), half = first.num_pairs();
  visit_numbers(first.x.dtype, [&]<class T>(T) {
    using A = Wide<on_device<T>>;
    const Rotation<on_device<T>> rotation = {.cos = numbers<A>(first.cos) + first.first_position * half,
                                             .sin = numbers<A>(first.sin) + first.first_position * half,
                                             .positions = numbers<std::int32_t>(first.positions),
                                             .frequencies = numbers<double>(first.frequencies),
                                             .scale = first.scale,
                                             .growth = first.growth,
                                             .period = first.period,
                                             .sign = first.inverse ? A{-1} : A{1},
                                             .num_tokens = num_tokens,
                                             .seq_len = first.x.size(1),
                                             .half = static_cast<int>(half),
                                             .head_dim = static_cast<int>(first.x.size(3))};
    visit_row_width<T>(half, [&]<int width>(std::integral_constant<int, width>) {
      AllHeads<on_device<T>> all;
      for (const RopeArgs& args : held) {
        const std::int64_t H = args.x.size(2), S = blocks_for(H, heads_of_thread);
        Amaxes<1> amaxes = amaxes_of(lane.workspace, args.y);
        if (amaxes.zeros != nullptr) amaxes.zeros += 2 * all.count;
        all.add({numbers<T>(args.x), numbers<T>(args.y), static_cast<int>(H), static_cast<int>(S), amaxes},
                blocks_for(num_tokens * S * (half / width), block_threads));
      }
      launch({.num_blocks = all.num_blocks(), .num_threads = block_threads, .stream = lane.stream},
             rope_kernel<on_device<T>, width>, all, rotation);
    });
  });
}

}  // namespace echelon::cuda
