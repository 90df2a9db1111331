// The sums over keys of a tile of queries: its output, or the gradient of its queries. Included once per instruction
// set (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_QUERY_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_QUERY_SUMS_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_QUERY_SUMS_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_QUERY_SUMS_INL_H_
#endif
// clang-format on

#include "ops/cpu/attention/packing-inl.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

template <class Format>
class QuerySums {
  using Sum = typename Format::Sum;

 public:
  /// In memory [capacity(C)] of the caller.
  QuerySums(std::int64_t C, Sum* memory)
      : columns_(padded<Format>(C)),
        sums_(memory),
        rows_(Format::has_matrices ? memory + tile_queries * columns_ : memory) {}
  static std::int64_t capacity(std::int64_t C) {
    return (Format::has_matrices ? 2 : 1) * tile_queries * padded<Format>(C);
  }

  /// [queries, padded C], or of matrix tiles [padded C, queries].
  [[nodiscard]] Sum* data() const { return sums_; }
  void clear() const { std::fill(sums_, sums_ + tile_queries * columns_, Sum{0}); }

  /// Multiplies the sums of each query by its factor.
  HWY_INLINE void rescale(const Sum* factors) const {
    if constexpr (Format::has_matrices) {
      for (std::int64_t c = 0; c < columns_; ++c)
        for (std::int64_t i = 0; i < tile_queries; i += num_lanes<Sum>()) {
          Sum* sums = sums_ + c * tile_queries + i;
          hn::Store(hn::Mul(hn::Load(Tag<Sum>(), sums), hn::Load(Tag<Sum>(), factors + i)), Tag<Sum>(), sums);
        }
    } else {
      for (std::int64_t i = 0; i < tile_queries; ++i) {
        if (factors[i] == Sum{1}) continue;
        const auto factor = hn::Set(Tag<Sum>(), factors[i]);
        Sum* row = sums_ + i * columns_;
        for_lanes<Sum>(0, columns_, [=](auto lanes, std::int64_t c) HWY_ATTR {
          lanes.store(hn::Mul(lanes.load(row + c), factor), row + c);
        });
      }
    }
  }

  /// Continues from the sums of some rows.
  HWY_INLINE void load(const HeadRows<const Sum>& x) const {
    for (std::int64_t i = 0; i < x.count; ++i) {
      const Sum* row = x.first + i * x.stride;
      if constexpr (Format::has_matrices)
        for (std::int64_t c = 0; c < x.C; ++c) sums_[c * tile_queries + i] = row[c];
      else
        std::copy_n(row, x.C, sums_ + i * columns_);
    }
  }

  /// [queries, padded C], of what is summed.
  [[nodiscard]] const Sum* rows() const {
    if constexpr (Format::has_matrices) transpose_sums(sums_, columns_, rows_);
    return rows_;
  }

 private:
  std::int64_t columns_;
  Sum *sums_, *rows_;
};

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
