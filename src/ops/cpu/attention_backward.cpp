// The gradients of causal attention (formulas: ops/reference/attention.cpp), by forming p again from lse, tile by tile. All heads that share a kv head are
// computed by one thread, whose dk and dv come together in float32 (float64) buffers of the kv head's size, so that every gradient has one writer.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/attention_backward.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/check.h"
#include "ops/cost.h"
#include "ops/cpu/attention_tiles-inl.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"

#include <limits>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

template <class A>
struct GradientTile {
  A *q, *q_transposed, *dout, *dout_transposed, *k, *v, *dq;  // [tile, padded C], transposed [C, tile]
  A *p, *ds;                                                  // [keys, queries]
  A *lse, *delta;                                             // [tile]

  GradientTile(Scratch<A>& scratch, std::int64_t C) {
    const std::int64_t size = tile * padded<A>(C);
    for (A** buffer : {&q, &q_transposed, &dout, &dout_transposed, &k, &v, &dq}) *buffer = scratch.take(size);
    A* squares = scratch.take(2 * tile * tile + 2 * tile);
    p = squares;
    ds = squares + tile * tile;
    lse = squares + 2 * tile * tile;
    delta = lse + tile;
  }
  static std::int64_t capacity(std::int64_t C) { return 7 * tile * padded<A>(C) + 2 * tile * tile + 2 * tile; }
};

/// What the tensors hold of one sequence and one query head. Offsets of row 0, in numbers.
struct HeadOfSequence {
  std::int64_t query_offset, key_offset, row_offset;
};

/// From scores and dp (in t.p and t.ds, transposed) to p = exp(score - lse) and ds = p (dp - delta).
template <class A>
HWY_INLINE void differentiate_softmax(const GradientTile<A>& t, const CausalMask& mask) {
  const Tag<A> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const bool hides = mask.hides_something();
  for (std::int64_t i = 0; i < tile; i += lanes) {
    const auto lse = hn::LoadU(d, t.lse + i), delta = hn::LoadU(d, t.delta + i), zero = hn::Zero(d);
    for (std::int64_t r = 0; r < tile; ++r) {
      auto p = exp_below_one<A>(hn::Sub(hn::LoadU(d, t.p + r * tile + i), lse));
      if (hides) p = masked<A>(p, mask, r, i, zero);
      hn::StoreU(p, d, t.p + r * tile + i);
      auto ds = hn::Mul(p, hn::Sub(hn::LoadU(d, t.ds + r * tile + i), delta));
      if (hides) ds = masked<A>(ds, mask, r, i, zero);
      hn::StoreU(ds, d, t.ds + r * tile + i);
    }
  }
}

/// delta = row sums of dout * out, into the tile and the tensor.
template <class T, class A = Accumulate<T>>
HWY_INLINE void sum_rows(const HeadRows<const T>& dout, const HeadRows<const T>& out, A* tile_delta, A* delta) {
  for (std::int64_t i = 0; i < dout.count; ++i) {
    const T *x = dout.first + i * dout.stride, *y = out.first + i * out.stride;
    auto sum = hn::Zero(Tag<A>());
    for_lanes<A>(0, dout.C, [&](auto lanes, std::int64_t c) HWY_ATTR { sum = hn::MulAdd(lanes.load(x + c), lanes.load(y + c), sum); });
    delta[i] = tile_delta[i] = sum_of_lanes<A>(sum);
  }
}

/// dq of one tile of queries of one head, and its part of dk and dv ([positions, padded C], added to).
template <class T, class A = Accumulate<T>>
HWY_INLINE void differentiate(const AttentionBackwardArgs& args, const HeadOfSequence& head, std::int64_t first_query, const GradientTile<A>& t, A* dk, A* dv) {
  const std::int64_t num_positions = args.q.size(1), C = args.q.size(3), width = padded<A>(C);
  const std::int64_t query_stride = args.q.size(2) * C, key_stride = args.k.size(2) * C;
  const std::int64_t count = std::min(tile, num_positions - first_query), query = head.query_offset + first_query * query_stride;
  const auto rows_of = [=](const Tensor& x) { return HeadRows<const T>{x.as<T>() + query, count, query_stride, C}; };

  pack<A>(rows_of(args.q), static_cast<A>(args.scale), t.q);
  pack<A>(rows_of(args.dout), A{1}, t.dout);
  transpose(t.q, C, t.q_transposed);
  transpose(t.dout, C, t.dout_transposed);
  std::fill(t.lse, t.lse + tile, std::numeric_limits<A>::infinity());  // queries beyond the end: p = 0
  std::fill(t.delta, t.delta + tile, A{0});
  std::copy_n(args.lse.as<A>() + head.row_offset + first_query, count, t.lse);
  sum_rows<T>(rows_of(args.dout), rows_of(args.out), t.delta, args.delta.as<A>() + head.row_offset + first_query);
  std::fill(t.dq, t.dq + tile * width, A{0});

  for (std::int64_t j = 0; j < first_query + count; j += tile) {
    const std::int64_t key = head.key_offset + j * key_stride, num_keys = std::min(tile, num_positions - j);
    pack<A>(HeadRows<const T>{args.k.as<T>() + key, num_keys, key_stride, C}, A{1}, t.k);
    pack<A>(HeadRows<const T>{args.v.as<T>() + key, num_keys, key_stride, C}, A{1}, t.v);
    multiply_tile(TileProduct<A>{.a = t.k, .a_row = width, .a_column = 1, .b = t.q_transposed, .c = t.p, .M = tile, .N = tile, .K = C});
    multiply_tile(TileProduct<A>{.a = t.v, .a_row = width, .a_column = 1, .b = t.dout_transposed, .c = t.ds, .M = tile, .N = tile, .K = C});
    differentiate_softmax(t, CausalMask{first_query, j, 0});
    multiply_tile(
        TileProduct<A>{.a = t.p, .a_row = tile, .a_column = 1, .b = t.dout, .c = dv + j * width, .M = tile, .N = width, .K = tile, .accumulates = true});
    multiply_tile(
        TileProduct<A>{.a = t.ds, .a_row = tile, .a_column = 1, .b = t.q, .c = dk + j * width, .M = tile, .N = width, .K = tile, .accumulates = true});
    multiply_tile(TileProduct<A>{.a = t.ds, .a_row = 1, .a_column = tile, .b = t.k, .c = t.dq, .M = tile, .N = width, .K = tile, .accumulates = true});
  }
  const auto scale = hn::Set(Tag<A>(), static_cast<A>(args.scale));
  for (std::int64_t i = 0; i < count; ++i) {
    const A* from = t.dq + i * width;
    T* into = args.dq.as<T>() + query + i * query_stride;
    for_lanes<A>(0, C, [=](auto lanes, std::int64_t c) HWY_ATTR { lanes.store(hn::Mul(lanes.load(from + c), scale), into + c); });
  }
}

template <class T, class A = Accumulate<T>>
HWY_INLINE void unpack(const A* packed, const HeadRows<T>& x) {
  const std::int64_t width = padded<A>(x.C);
  for (std::int64_t row = 0; row < x.count; ++row) {
    const A* from = packed + row * width;
    T* into = x.first + row * x.stride;
    for_lanes<A>(0, x.C, [=](auto lanes, std::int64_t c) HWY_ATTR { lanes.store(lanes.load(from + c), into + c); });
  }
}

template <class T>
void differentiate_all(const AttentionBackwardArgs& args, int num_threads) {
  using A = Accumulate<T>;
  const std::int64_t B = args.q.size(0), num_positions = args.q.size(1), H = args.q.size(2), C = args.q.size(3), K = args.k.size(2);
  const std::int64_t rows = (num_positions + tile - 1) / tile * tile, size = rows * padded<A>(C);
  divide({B * K, num_visible_pairs(num_positions, num_positions) * C / 8, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    Scratch<A> scratch(GradientTile<A>::capacity(C) + 2 * size);
    const GradientTile<A> buffers(scratch, C);
    A *dk = scratch.take(size), *dv = scratch.take(size);
    for (std::int64_t bk = first; bk < last; ++bk) {
      const std::int64_t b = bk / K, kv_head = bk % K, key = (b * num_positions * K + kv_head) * C;
      std::fill(dk, dk + size, A{0});
      std::fill(dv, dv + size, A{0});
      for (std::int64_t h = 0; h < H; ++h) {
        if ((h + args.first_head) / args.group != kv_head) continue;
        const HeadOfSequence head{(b * num_positions * H + h) * C, key, (b * H + h) * num_positions};
        for (std::int64_t i = 0; i < num_positions; i += tile) differentiate<T>(args, head, i, buffers, dk, dv);
      }
      unpack<T>(dk, {args.dk.as<T>() + key, num_positions, K * C, C});
      unpack<T>(dv, {args.dv.as<T>() + key, num_positions, K * C, C});
    }
  });
}

void AttentionBackward(const AttentionBackwardArgs& args, int num_threads) {
  visit_float(args.q.dtype, [&](auto t) { differentiate_all<decltype(t)>(args, num_threads); });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(AttentionBackward);

void CpuOps::attention_backward(const AttentionBackwardArgs& args) {
  check(args);
  HWY_DYNAMIC_DISPATCH(AttentionBackward)(args, num_threads_);
}

}  // namespace echelon
#endif
