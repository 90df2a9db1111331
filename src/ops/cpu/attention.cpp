// Causal attention in tiles of 64 queries by 64 keys with a running maximum and sum per query (Dao et al. 2022, arXiv:2205.14135; Milakov and Gimelshein 2018).
// Tiles that the mask hides are never formed. All tiles of one (sequence, head) are computed by one thread.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/attention.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/check.h"
#include "ops/cost.h"
#include "ops/cpu/attention_tiles-inl.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// The buffers of one query tile; the same memory for every tile of a thread.
template <class A>
struct QueryTile {
  A *q, *q_transposed, *k, *v, *scores, *out;  // [tile, padded C] except q_transposed [C, tile] and scores [keys, queries]
  A *max, *sum, *rescale;                      // [tile]

  QueryTile(Scratch<A>& scratch, std::int64_t C) {
    const std::int64_t size = tile * padded<A>(C);
    for (A** buffer : {&q, &q_transposed, &k, &v, &out}) *buffer = scratch.take(size);
    scores = scratch.take(tile * tile);
    for (A** buffer : {&max, &sum, &rescale}) *buffer = scratch.take(tile);
  }
  static std::int64_t capacity(std::int64_t C) { return 5 * tile * padded<A>(C) + tile * tile + 3 * tile; }
};

/// Scores become exp(score - max) with the maximum so far; sum, max and rescale follow.
template <class A>
HWY_INLINE void soften(const QueryTile<A>& t, const CausalMask& mask) {
  const Tag<A> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<A>::infinity()), zero = hn::Zero(d);
  const bool hides = mask.hides_something();
  for (std::int64_t i = 0; i < tile; i += lanes) {
    const auto max_before = hn::LoadU(d, t.max + i);
    auto max = max_before;
    for (std::int64_t r = 0; r < tile; ++r) {
      auto s = hn::LoadU(d, t.scores + r * tile + i);
      if (hides) {
        s = masked<A>(s, mask, r, i, lowest);
        hn::StoreU(s, d, t.scores + r * tile + i);
      }
      max = hn::Max(max, s);
    }
    // A query that has seen no key yet has no maximum: any number will do to subtract.
    const auto subtrahend = hn::IfThenElse(hn::Eq(max, lowest), zero, max);
    const auto rescale = exp_below_one<A>(hn::Sub(max_before, subtrahend));
    auto sum = hn::Mul(hn::LoadU(d, t.sum + i), rescale);
    for (std::int64_t r = 0; r < tile; ++r) {
      const auto p = exp_below_one<A>(hn::Sub(hn::LoadU(d, t.scores + r * tile + i), subtrahend));
      hn::StoreU(p, d, t.scores + r * tile + i);
      sum = hn::Add(sum, p);
    }
    hn::StoreU(max, d, t.max + i);
    hn::StoreU(sum, d, t.sum + i);
    hn::StoreU(rescale, d, t.rescale + i);
  }
}

template <class A>
HWY_INLINE void scale_rows(A* rows, const A* factors, std::int64_t width) {
  for (std::int64_t i = 0; i < tile; ++i) {
    if (factors[i] == A{1}) continue;
    const auto factor = hn::Set(Tag<A>(), factors[i]);
    A* row = rows + i * width;
    for_lanes<A>(0, width, [=](auto lanes, std::int64_t c) HWY_ATTR { lanes.store(hn::Mul(lanes.load(row + c), factor), row + c); });
  }
}

/// One tile of queries of one head against all keys that it sees.
template <class T>
struct QueryTileOfHead {
  HeadRows<const T> q, k, v;  // k and v: all keys
  HeadRows<T> out;
  Accumulate<T>* lse;
  std::int64_t first_query, offset;
  Accumulate<T> scale;
};

template <class T, class A = Accumulate<T>>
HWY_INLINE void attend(const QueryTileOfHead<T>& head, const QueryTile<A>& t) {
  const std::int64_t C = head.q.C, width = padded<A>(C);
  pack<A>(head.q, head.scale, t.q);
  transpose(t.q, C, t.q_transposed);
  std::fill(t.max, t.max + tile, -std::numeric_limits<A>::infinity());
  std::fill(t.sum, t.sum + tile, A{0});
  std::fill(t.out, t.out + tile * width, A{0});
  const std::int64_t num_seen = std::clamp<std::int64_t>(head.first_query + head.q.count + head.offset, 0, head.k.count);
  for (std::int64_t j = 0; j < num_seen; j += tile) {
    const std::int64_t count = std::min(tile, head.k.count - j);
    pack<A>(HeadRows<const T>{head.k.first + j * head.k.stride, count, head.k.stride, C}, A{1}, t.k);
    pack<A>(HeadRows<const T>{head.v.first + j * head.v.stride, count, head.v.stride, C}, A{1}, t.v);
    multiply_tile(TileProduct<A>{.a = t.k, .a_row = width, .a_column = 1, .b = t.q_transposed, .c = t.scores, .M = tile, .N = tile, .K = C});
    soften(t, CausalMask{head.first_query, j, head.offset});
    scale_rows(t.out, t.rescale, width);
    multiply_tile(TileProduct<A>{.a = t.scores, .a_row = 1, .a_column = tile, .b = t.v, .c = t.out, .M = tile, .N = width, .K = tile, .accumulates = true});
  }
  for (std::int64_t i = 0; i < head.out.count; ++i) {
    const A sum = t.sum[i], inverse = sum == A{0} ? A{0} : A{1} / sum;  // zero: the query sees no key
    head.lse[i] = sum == A{0} ? -std::numeric_limits<A>::infinity() : t.max[i] + std::log(sum);
    const auto factor = hn::Set(Tag<A>(), inverse);
    const A* from = t.out + i * width;
    T* into = head.out.first + i * head.out.stride;
    for_lanes<A>(0, C, [=](auto lanes, std::int64_t c) HWY_ATTR { lanes.store(hn::Mul(lanes.load(from + c), factor), into + c); });
  }
}

template <class T>
void attend_all(const AttentionArgs& args, int num_threads) {
  using A = Accumulate<T>;
  const std::int64_t B = args.q.size(0), Tq = args.q.size(1), H = args.q.size(2), C = args.q.size(3), Tk = args.k.size(1), K = args.k.size(2);
  divide({B * H, num_visible_pairs(Tq, Tk) * C / 16, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    Scratch<A> scratch(QueryTile<A>::capacity(C));
    const QueryTile<A> buffers(scratch, C);
    for (std::int64_t bh = first; bh < last; ++bh) {
      const std::int64_t b = bh / H, h = bh % H, kv_head = (h + args.first_head) / args.group;
      for (std::int64_t i = 0; i < Tq; i += tile) {
        const std::int64_t count = std::min(tile, Tq - i), query = ((b * Tq + i) * H + h) * C, key = (b * Tk * K + kv_head) * C;
        attend<T>({.q = {args.q.as<T>() + query, count, H * C, C},
                   .k = {args.k.as<T>() + key, Tk, K * C, C},
                   .v = {args.v.as<T>() + key, Tk, K * C, C},
                   .out = {args.out.as<T>() + query, count, H * C, C},
                   .lse = args.lse.as<A>() + bh * Tq + i,
                   .first_query = i,
                   .offset = Tk - Tq,
                   .scale = static_cast<A>(args.scale)},
                  buffers);
      }
    }
  });
}

void Attention(const AttentionArgs& args, int num_threads) {
  visit_float(args.q.dtype, [&](auto t) { attend_all<decltype(t)>(args, num_threads); });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(Attention);

void CpuOps::attention(const AttentionArgs& args) {
  check(args);
  HWY_DYNAMIC_DISPATCH(Attention)(args, num_threads_);
}

}  // namespace echelon
#endif
