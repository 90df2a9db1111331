// Tiles of attention: packing, small products and the causal mask. Included once per instruction set (Highway).
//
// Scores are kept transposed, [keys, queries]: a vector holds one key's scores for neighbouring queries, so the softmax needs no sum across lanes, and only the
// queries' tile has to be transposed, once for all keys.

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_TILES_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_TILES_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_TILES_INL_H_
#endif
// clang-format on

#include "ops/cpu/lanes-inl.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

constexpr std::int64_t tile = 64;  // queries and keys

/// Rows of a tile are padded with zeros to whole vectors.
template <class A>
HWY_INLINE std::int64_t padded(std::int64_t C) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag<A>()));
  return (C + lanes - 1) / lanes * lanes;
}

/// Some of the vectors [C] of one head: `count` of them, `stride` numbers apart.
template <class T>
struct HeadRows {
  T* first = nullptr;
  std::int64_t count = 0, stride = 0, C = 0;
};

/// packed[tile, padded C] = factor x; zeros where there is nothing.
template <class A, class T>
HWY_INLINE void pack(const HeadRows<const T>& x, A factor, A* packed) {
  const std::int64_t width = padded<A>(x.C);
  const auto factors = hn::Set(Tag<A>(), factor);
  for (std::int64_t row = 0; row < x.count; ++row) {
    const T* from = x.first + row * x.stride;
    A* into = packed + row * width;
    if (width != x.C) std::fill(into + x.C, into + width, A{0});
    for_lanes<A>(0, x.C, [=](auto lanes, std::int64_t i) HWY_ATTR { lanes.store(hn::Mul(factors, lanes.load(from + i)), into + i); });
  }
  std::fill(packed + x.count * width, packed + tile * width, A{0});
}

/// transposed[C, tile] of packed[tile, padded C].
template <class A>
HWY_INLINE void transpose(const A* packed, std::int64_t C, A* transposed) {
  const std::int64_t width = padded<A>(C);
  for (std::int64_t row = 0; row < tile; row += 8)  // a cache line of the result at a time
    for (std::int64_t c = 0; c < C; ++c)
      for (std::int64_t r = row; r < row + 8; ++r) transposed[c * tile + r] = packed[r * width + c];
}

/// c[M, N] = (or +=) a[M, K] b[K, N] with a[i, p] at a + i a_row + p a_column. M is a multiple of 8, N of a vector.
template <class A>
struct TileProduct {
  const A* a = nullptr;
  std::int64_t a_row = 0, a_column = 0;
  const A* b = nullptr;
  A* c = nullptr;
  std::int64_t M = 0, N = 0, K = 0;
  bool accumulates = false;
};

/// `rows` rows by `vectors` vectors of c, held in registers.
template <int rows, int vectors, class A>
HWY_INLINE void multiply_block(const TileProduct<A>& p, std::int64_t row, std::int64_t column) {
  const Tag<A> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const A* a = p.a + row * p.a_row;
  const A* b = p.b + column;
  A* c = p.c + row * p.N + column;
  Vec<A> sums[rows][vectors];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) sums[r][v] = p.accumulates ? hn::LoadU(d, c + r * p.N + v * lanes) : hn::Zero(d);
  for (std::int64_t k = 0; k < p.K; ++k) {
    Vec<A> b_k[vectors];
    for (int v = 0; v < vectors; ++v) b_k[v] = hn::LoadU(d, b + k * p.N + v * lanes);
    for (int r = 0; r < rows; ++r) {
      const auto a_rk = hn::Set(d, a[r * p.a_row + k * p.a_column]);
      for (int v = 0; v < vectors; ++v) sums[r][v] = hn::MulAdd(a_rk, b_k[v], sums[r][v]);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) hn::StoreU(sums[r][v], d, c + r * p.N + v * lanes);
}

template <class A>
HWY_INLINE void multiply_tile(const TileProduct<A>& p) {
#if HWY_TARGET == HWY_AVX3
  constexpr int rows = 8, vectors = 2;  // 32 registers: 16 sums hide the latency, and a load feeds more than one of them
#else
  constexpr int rows = 4, vectors = 2;  // 16 registers
#endif
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag<A>()));
  std::int64_t column = 0;
  for (; column + vectors * lanes <= p.N; column += vectors * lanes)
    for (std::int64_t row = 0; row < p.M; row += rows) multiply_block<rows, vectors>(p, row, column);
  if (column < p.N)
    for (std::int64_t row = 0; row < p.M; row += rows) multiply_block<rows, 1>(p, row, column);
}

/// Where key `first_key` + r meets query `first_query` + lane. Query i sees keys up to i + offset.
struct CausalMask {
  std::int64_t first_query = 0, first_key = 0, offset = 0;

  [[nodiscard]] bool hides_something() const { return first_key + tile - 1 > first_query + offset; }
  /// The first query of the tile that sees key r of its tile.
  [[nodiscard]] std::int64_t first_seeing(std::int64_t r) const { return first_key + r - first_query - offset; }
};

/// scores of one key for the queries from `query` on: where it is hidden, `hidden` instead.
template <class A>
HWY_INLINE Vec<A> masked(Vec<A> scores, const CausalMask& mask, std::int64_t r, std::int64_t query, Vec<A> hidden) {
  const Tag<A> d;
  const auto seen = hn::Ge(hn::Iota(d, static_cast<A>(query)), hn::Set(d, static_cast<A>(mask.first_seeing(r))));
  return hn::IfThenElse(seen, scores, hidden);
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
