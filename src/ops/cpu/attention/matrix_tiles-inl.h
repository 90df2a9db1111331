// The matmuls of a tile of attention by matrix registers (matrix_tiles.h). Included once per instruction set (Highway).
//
// The softmax is that of Pairs, whose layouts registers take as they are. Sums over keys are transposed, [C, queries]:
// p and ds [keys, queries] are their right factor, so that only keys or values have to be transposed, once for all
// queries. Blocks that no query of a tile sees are not computed; the softmax leaves zeros in what no query of a block
// sees (clear()).

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_MATRIX_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_MATRIX_TILES_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_MATRIX_TILES_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_MATRIX_TILES_INL_H_
#endif
// clang-format on

#include "ops/cpu/attention/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
template <>
struct TileProducts<MatrixTiles> {
  std::int64_t C = 0;
  RowsAhead ahead;
  MatrixRegisters registers = {};

  void divide_ahead(std::int64_t num_products) {
    constexpr std::int64_t per_side = tile_queries / matrix_side;
    ahead.divide(num_products * per_side * per_side);
  }

  /// c[keys, queries] = rows[keys, C] queries[C, queries]
  void multiply_over_C(const MaskedTile& tile, const std::uint32_t* rows, const std::uint32_t* queries, float* c) {
    const std::int64_t width = packed_width<MatrixTiles>(C);
    for (std::int64_t key = tile.first_key / matrix_side * matrix_side; key < tile.num_keys; key += matrix_side) {
      const std::int64_t first = tile.first_seeing(key) / matrix_side * matrix_side;
      multiply_matrices({.a = rows + key * width,
                         .a_row = width,
                         .b = queries + first,
                         .b_row = tile_queries,
                         .c = c + key * tile_queries + first,
                         .c_row = tile_queries,
                         .num_rows = matrix_side,
                         .num_columns = rounded_up(tile.num_queries, matrix_side) - first,
                         .depth = width},
                        ahead);
    }
  }

  /// c[C, queries] (+)= rows[C, keys] a[keys, queries]
  void multiply_over_keys(const MaskedTile& tile, const std::uint32_t* a, const std::uint32_t* rows, float* c,
                          bool accumulates) {
    for (std::int64_t query = 0; query < tile.true_queries; query += matrix_side) {
      const std::int64_t first = tile.hidden(query) / matrix_side * matrix_side / 2;
      multiply_matrices({.a = rows + first,
                         .a_row = tile_keys / 2,
                         .b = a + first * tile_queries + query,
                         .b_row = tile_queries,
                         .c = c + query,
                         .c_row = tile_queries,
                         .num_rows = padded<MatrixTiles>(C),
                         .num_columns = matrix_side,
                         .depth = rounded_up(tile.visible(query + matrix_side - 1), matrix_side) / 2 - first,
                         .accumulates = accumulates},
                        ahead);
    }
  }

  /// dx[keys, C] (+)= a[keys, queries] queries[queries, C], a being p or ds.
  void multiply_over_queries(const MaskedTile& tile, const std::uint32_t* a, const std::uint32_t* queries, float* dx,
                             bool accumulates) {
    const std::int64_t columns = padded<MatrixTiles>(C), width = tile_queries / 2;
    for (std::int64_t key = tile.first_key / matrix_side * matrix_side; key < tile.num_keys; key += matrix_side) {
      const std::int64_t first = tile.first_seeing(key) / matrix_side * matrix_side / 2;
      multiply_matrices({.a = a + key * width + first,
                         .a_row = width,
                         .b = queries + first * columns,
                         .b_row = columns,
                         .c = dx + key * columns,
                         .c_row = columns,
                         .num_rows = matrix_side,
                         .num_columns = columns,
                         .depth = rounded_up(tile.num_queries, matrix_side) / 2 - first,
                         .accumulates = accumulates},
                        ahead);
    }
  }
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
