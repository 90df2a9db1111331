// A tile of vectors of queries as matmuls need it. Included once per instruction set (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_QUERY_OPERAND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_QUERY_OPERAND_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_QUERY_OPERAND_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_QUERY_OPERAND_INL_H_
#endif
// clang-format on

#include "ops/cpu/attention/packing-inl.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// As rows, with sums over its rows, and with sums over C.
template <class Format>
struct QueryOperand {
  using Number = typename Format::Number;
  using Sum = typename Format::Sum;

  QueryOperand(std::int64_t C, Scratch<Sum>& scratch) {
    const std::int64_t columns = padded<Format>(C), width = packed_width<Format>(C);
    const auto take = [&](std::int64_t count) { return reinterpret_cast<Number*>(scratch.take(count)); };
    rows = take(tile_queries * width);
    over_queries = Format::is_paired ? take(tile_queries / 2 * columns) : rows;
    over_C = take(width * tile_queries);
  }

  template <class T>
  HWY_INLINE void load(const HeadRows<const T>& x, Sum scale) const {
    pack<Format>(x, tile_queries, rows);
    transpose<Format>({rows, packed_width<Format>(x.C)}, x.C, scale, over_C);
    if constexpr (Format::is_paired) pair_rows<Format>(rows, tile_queries, x.C, num_lanes<Sum>(), over_queries);
  }

  Number *rows, *over_queries, *over_C;
};

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
