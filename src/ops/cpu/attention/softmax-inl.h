// The softmax of a tile of scores, forward and backward (formulas: ops/reference/attention.cpp). Included once per
// instruction set (Highway).
//
// Scores are in units of log 2, so that p = 2^(score - maximum). Pairs have scores without their scale, which these
// loops multiply by.
//
// Two rows at a time, and functions of their own: the values of their innermost loops stay within 16 registers, except
// for constants, which are operands in memory (tests/ops/spills).

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_SOFTMAX_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_SOFTMAX_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_SOFTMAX_INL_H_
#endif
// clang-format on

#include "hwy/contrib/math/math-inl.h"
#include "ops/cpu/attention/mask-inl.h"

#include <limits>
#include <numbers>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// The softmax with a running maximum and sum per query (Milakov and Gimelshein 2018). The maximum need not be the
/// largest score, it only has to be close: it is replaced, and what was summed rescaled, when a score exceeds it by
/// more than 8, which p in float32 can take.
template <class Format>
struct RunningSoftmax {
  using Number = typename Format::Number;
  using Sum = typename Format::Sum;
  Sum scale = 1;                       // of Pairs' scores
  Sum* scores = nullptr;               // [keys, queries]
  Number* p = nullptr;                 // the same, of packed summands; Plain: in place of the scores
  Sum *max = nullptr, *sum = nullptr;  // [queries]
  Sum* rescale = nullptr;              // what sums of p before this tile have to be multiplied by
  const Sum* first_keys = nullptr;

  void begin() const {
    std::fill(max, max + tile_queries, -std::numeric_limits<Sum>::infinity());
    std::fill(sum, sum + tile_queries, Sum{0});
  }

  /// Replaces scores by p, and updates max, sum and rescale. Returns whether some maximum was replaced.
  HWY_NOINLINE bool apply(const MaskedTile& tile) const {
    const Tag<Sum> d;
    const auto lowest = hn::Set(d, -std::numeric_limits<Sum>::infinity()), tolerated = hn::Set(d, Sum{8});
    bool has_grown = false;
    std::fill(rescale + tile.num_queries, rescale + tile_queries, Sum{1});
    for (std::int64_t i = 0; i < tile.num_queries; i += num_lanes<Sum>()) {
      const auto top = largest_score(tile, i), before = hn::Load(d, max + i);
      const auto grown = hn::Gt(top, hn::Add(before, tolerated));
      const auto close = hn::IfThenElse(grown, top, before);
      // A query that has seen no key yet has no maximum: any value can be subtracted.
      const auto subtrahend = hn::IfThenElse(hn::Eq(close, lowest), hn::Zero(d), close);
      const auto factor = exp2<Sum>(hn::Sub(before, subtrahend));
      hn::Store(close, d, max + i);
      hn::Store(factor, d, rescale + i);
      hn::Store(hn::MulAdd(hn::Load(d, sum + i), factor, exponentiate(tile, i, subtrahend)), d, sum + i);
      has_grown |= !hn::AllFalse(d, grown);
    }
    return has_grown;
  }

  /// Replaces the maxima by the logarithms of what was summed. Not in a loop, whose registers its constants exceed.
  HWY_NOINLINE void take_logarithm(std::int64_t i) const {
    const Tag<Sum> d;
    const auto total = hn::Load(d, sum + i), lowest = hn::Set(d, -std::numeric_limits<Sum>::infinity());
    const auto logarithm =
        hn::MulAdd(hn::Load(d, max + i), hn::Set(d, static_cast<Sum>(std::numbers::ln2)), hn::Log(d, total));
    const auto log_or_nan = hn::IfThenElse(hn::IsNaN(total), total, logarithm);
    // zero: the query sees no key.
    hn::Store(hn::IfThenElse(hn::Eq(total, hn::Zero(d)), lowest, log_or_nan), d, max + i);
  }

 private:
  /// Of the queries from i on: the largest score that each sees. Scores that it does not see become -infinity.
  HWY_INLINE Vec<Sum> largest_score(const MaskedTile& tile, std::int64_t i) const {
    const Tag<Sum> d;
    const auto lowest = hn::Set(d, -std::numeric_limits<Sum>::infinity());
    Vec<Sum> largest[block_rows] = {lowest, lowest, lowest, lowest};
    const auto seen = tile.blocks_seen(i, num_lanes<Sum>());
    for (std::int64_t r = seen.first_for_all; r < seen.last_for_all; r += block_rows) {
      const Sum* row = scores + r * tile_queries + i;
      // In this order, a NaN is ignored.
      for (int n = 0; n < block_rows; ++n) largest[n] = hn::Max(hn::Load(d, row + n * tile_queries), largest[n]);
    }
    for (std::int64_t r = seen.first; r < seen.last; r += block_rows) {
      if (r == seen.first_for_all) r = seen.last_for_all;
      if (r >= seen.last) break;
      Sum* row = scores + r * tile_queries + i;
      for (int n = 0; n < block_rows; ++n) {
        const auto score =
            hn::IfThenElse(seeing(tile, first_keys, r + n, i), hn::Load(d, row + n * tile_queries), lowest);
        hn::Store(score, d, row + n * tile_queries);
        largest[n] = hn::Max(score, largest[n]);
      }
    }
    const auto top = hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3]));
    return Format::is_paired ? hn::Mul(top, hn::Set(d, scale)) : top;
  }

  /// p of the queries from i on, and its sum.
  HWY_INLINE Vec<Sum> exponentiate(const MaskedTile& tile, std::int64_t i, Vec<Sum> subtrahend) const {
    const auto seen = tile.blocks_seen(i, num_lanes<Sum>());
    // Rows are summed in four sums, of every fourth row.
    const auto first = exponentiate_rows(seen.first, seen.last, i, subtrahend),
               second = exponentiate_rows(seen.first + 2, seen.last, i, subtrahend);
    return hn::Add(first, second);
  }

  /// The first two of every four rows from `first` on.
  HWY_INLINE Vec<Sum> exponentiate_rows(std::int64_t first, std::int64_t last, std::int64_t i,
                                        Vec<Sum> subtrahend) const {
    const Tag<Sum> d;
    Vec<Sum> sums[2] = {hn::Zero(d), hn::Zero(d)};
    for (std::int64_t r = first; r < last; r += block_rows) {
      const Sum* row = scores + r * tile_queries + i;
      Vec<Sum> power[2];
      for (int n = 0; n < 2; ++n) {
        const auto score = hn::Load(d, row + n * tile_queries);
        power[n] = Format::is_paired ? hn::MulSub(score, hn::Set(d, scale), subtrahend) : hn::Sub(score, subtrahend);
      }
      raise_two<Sum>(power);
      for (int n = 0; n < 2; ++n) sums[n] = hn::Add(sums[n], power[n]);
      if constexpr (Format::is_paired)
        hn::Store(Format::pair(power[0], power[1]), Tag<Number>(), p + r / 2 * tile_queries + i);
      else
        for (int n = 0; n < 2; ++n) hn::Store(power[n], d, p + (r + n) * tile_queries + i);
    }
    return hn::Add(sums[0], sums[1]);
  }
};

/// From the scores and dp of a tile to p = 2^(score - lse) and ds = p (dp - delta).
template <class Format>
struct SoftmaxGradient {
  using Number = typename Format::Number;
  using Sum = typename Format::Sum;
  Sum scale = 1;                     // of Pairs' scores
  Sum *p = nullptr, *ds = nullptr;   // [keys, queries]: the scores and dp before
  Number* p_over_queries = nullptr;  // packed for sums over queries and over keys; Plain: p and ds
  Number *ds_over_queries = nullptr, *ds_over_keys = nullptr;
  Sum *lse = nullptr, *delta = nullptr;  // [queries]
  const Sum* first_keys = nullptr;

  /// Queries of a step: a vector, or the two whose values are paired.
  static std::int64_t queries_at_once() { return Format::per_number * num_lanes<Sum>(); }

  HWY_NOINLINE void apply(const MaskedTile& tile) const {
    const std::int64_t step = queries_at_once();
    for (std::int64_t i = 0; i < tile.num_queries; i += step) {
      const auto seen = tile.blocks_seen(i, step);
      for (std::int64_t r = seen.first; r < seen.first_for_all; r += 2) differentiate_rows<true>(tile, r, i);
      for (std::int64_t r = seen.first_for_all; r < seen.last_for_all; r += 2) differentiate_rows<false>(tile, r, i);
      for (std::int64_t r = seen.last_for_all; r < seen.last; r += 2) differentiate_rows<true>(tile, r, i);
    }
  }

 private:
  /// Two keys and the queries from i on.
  template <bool is_masked>
  HWY_INLINE void differentiate_rows(const MaskedTile& tile, std::int64_t r, std::int64_t i) const {
    constexpr int per_row = Format::per_number;
    const Tag<Sum> d;
    const std::int64_t lanes = num_lanes<Sum>();
    const auto query = [=](int n) HWY_ATTR { return i + n % per_row * lanes; };
    const auto at = [=](int n) HWY_ATTR { return (r + n / per_row) * tile_queries + query(n); };
    Vec<Sum> power[2 * per_row], gradient[2 * per_row];  // of row n / per_row
    for (int n = 0; n < 2 * per_row; ++n) {
      const auto score = hn::Load(d, p + at(n)), log_sum = hn::Load(d, lse + query(n));
      power[n] = Format::is_paired ? hn::MulSub(score, hn::Set(d, scale), log_sum) : hn::Sub(score, log_sum);
    }
    raise_two<Sum>(power);
    for (int n = 0; n < 2 * per_row; ++n) {
      gradient[n] = hn::Mul(power[n], hn::Sub(hn::Load(d, ds + at(n)), hn::Load(d, delta + query(n))));
      if constexpr (is_masked) {
        const auto sees = seeing(tile, first_keys, r + n / per_row, query(n));
        power[n] = hn::IfThenElseZero(sees, power[n]);
        gradient[n] = hn::IfThenElseZero(sees, gradient[n]);
      }
    }
    if constexpr (Format::is_paired) {
      const Tag<Number> numbers;
      for (int n = 0; n < 2; ++n) {
        hn::Store(Format::pair(power[2 * n], power[2 * n + 1]), numbers, p_over_queries + at(2 * n) / 2);
        hn::Store(Format::pair(gradient[2 * n], gradient[2 * n + 1]), numbers, ds_over_queries + at(2 * n) / 2);
        hn::Store(Format::pair(gradient[n], gradient[2 + n]), numbers, ds_over_keys + r / 2 * tile_queries + query(n));
      }
    } else {
      for (int n = 0; n < 2; ++n) {
        hn::Store(power[n], d, p_over_queries + at(n));
        hn::Store(gradient[n], d, ds_over_queries + at(n));
      }
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
