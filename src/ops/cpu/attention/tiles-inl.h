// The matmuls of a tile of attention. Included once per instruction set (Highway).
//
// Scores are kept transposed, [keys, queries]: a vector holds one key's scores for neighbouring queries, so the softmax
// needs no sum across lanes, and only the queries' tile has to be transposed, once for all keys.

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_TILES_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_TILES_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_TILES_INL_H_
#endif
// clang-format on

#include "ops/cpu/attention/mask-inl.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// The matmuls of both passes.
template <class Format>
struct TileProducts {
  using Number = typename Format::Number;
  using Sum = typename Format::Sum;
  std::int64_t C = 0;
  RowsAhead ahead;  // what a matmul prefetches

  /// Spreads what is prefetched over so many matmuls.
  void divide_ahead(std::int64_t num_products) { ahead.divide(num_products * (tile_keys / block_rows) * 3); }

  /// c[keys, queries] = rows[keys, C] queries[C, queries]
  void multiply_over_C(const MaskedTile& tile, const Number* rows, const Number* queries, Sum* c) {
    const std::int64_t width = packed_width<Format>(C), depth = (C + Format::per_number - 1) / Format::per_number,
                       first = tile.first_key;
    multiply(Product<Format>{.a = rows + first * width,
                             .a_row = width,
                             .a_depth = 1,
                             .b = queries,
                             .b_row = tile_queries,
                             .c = c + first * tile_queries,
                             .c_row = tile_queries,
                             .num_rows = tile.num_keys - first,
                             .num_columns = tile.num_queries},
             ahead, [=, &tile](std::int64_t row) {
               return Extent{.first_column = tile.first_seeing(first + row), .first = 0, .last = depth};
             });
  }

  /// c[queries, C] (+)= a[keys, queries]^T rows[keys, C]
  void multiply_over_keys(const MaskedTile& tile, const Number* a, const Number* rows, Sum* c, bool accumulates) {
    const std::int64_t columns = padded<Format>(C);
    multiply(Product<Format>{.a = a,
                             .a_row = 1,
                             .a_depth = tile_queries,
                             .b = rows,
                             .b_row = columns,
                             .c = c,
                             .c_row = columns,
                             .num_rows = rounded_up(tile.true_queries, block_rows),
                             .num_columns = columns,
                             .accumulates = accumulates},
             ahead, [&tile](std::int64_t query) {
               return Extent{
                   .first = tile.hidden(query) / block_rows * block_rows / Format::per_number,
                   .last = (tile.visible(query + block_rows - 1) + Format::per_number - 1) / Format::per_number};
             });
  }

  /// dx[keys, C] (+)= a[keys, queries] queries[queries, C], a being p or ds.
  void multiply_over_queries(const MaskedTile& tile, const Number* a, const Number* queries, Sum* dx,
                             bool accumulates) {
    const std::int64_t columns = padded<Format>(C), width = tile_queries / Format::per_number, first = tile.first_key;
    multiply(Product<Format>{.a = a + first * width,
                             .a_row = width,
                             .a_depth = 1,
                             .b = queries,
                             .b_row = columns,
                             .c = dx + first * columns,
                             .c_row = columns,
                             .num_rows = tile.num_keys - first,
                             .num_columns = columns,
                             .accumulates = accumulates},
             ahead, [=, &tile](std::int64_t row) {
               return Extent{.first = tile.first_seeing(first + row) / Format::per_number,
                             .last = tile.last_seeing(first + row) / Format::per_number};
             });
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
