// Tiles by AMX (Intel's Advanced Matrix Extensions), whose registers hold 16 rows of 16 units each: a unit of a panel
// is two bfloat16 values that follow each other along k. One instruction multiplies two registers into the float32 sums
// of a third.
#include "ops/cpu/gemm_kernels.h"
#include "ops/cpu/processor_kind.h"
#include "ops/cpu/targets.h"

#include "hwy/base.h"

#if defined(__x86_64__)
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 finds it, falsely, in its own intrinsics
#endif
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-bf16")

#include "ops/cpu/amx_packing-inl.h"

namespace echelon {
namespace {

constexpr int tile_rows = 2 * side, tile_columns = 2 * side;
// A panel of b stays in the first cache, while those of a pass through it.
constexpr std::int64_t most_units = 128, row_stride = row_stride_of(most_units);

/// The sums of the registers 0 to 3, which are those of c row after row.
template <bool has_lower>
void load_sums(const float* from, std::int64_t stride) {
  const auto bytes = stride * static_cast<std::int64_t>(sizeof(float));
  _tile_loadd(0, from, bytes);
  _tile_loadd(1, from + side, bytes);
  if constexpr (has_lower) {
    _tile_loadd(2, from + side * stride, bytes);
    _tile_loadd(3, from + side * stride + side, bytes);
  }
}
template <bool has_lower>
void store_sums(float* into, std::int64_t stride) {
  const auto bytes = stride * static_cast<std::int64_t>(sizeof(float));
  _tile_stored(0, into, bytes);
  _tile_stored(1, into + side, bytes);
  if constexpr (has_lower) {
    _tile_stored(2, into + side * stride, bytes);
    _tile_stored(3, into + side * stride + side, bytes);
  }
}

/// Rows of tile_columns values.
void copy_rows(int rows, const float* from, std::int64_t from_stride, float* into, std::int64_t into_stride) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < tile_columns; j += lanes)
      _mm512_storeu_ps(into + i * into_stride + j, _mm512_loadu_ps(from + i * from_stride + j));
}

/// Prefetches later factors and the next tile's c while a tile is multiplied: a share of both at each step. Its members
/// are read one by one: a copy of just written arguments by vectors would wait for all earlier stores, those of sums.
class Ahead {
 public:
  explicit Ahead(const TileArgs& t)
      : row_(t.soon.row),
        row_stride_(t.soon.row_stride),
        column_(t.soon.column),
        per_row_(t.soon.per_row),
        num_lines_(t.soon.count),
        c_(t.next_c),
        ldc_(t.ldc) {
    const auto num_steps = static_cast<std::uint32_t>(t.depth / side);
    lines_per_step_ = (num_lines_ + num_steps - 1) / num_steps;
    rows_per_step_ = (tile_rows + num_steps - 1) / num_steps;
  }

  [[gnu::always_inline]] void step() {
    const std::uint32_t count = std::min(lines_per_step_, num_lines_);
    num_lines_ -= count;
    for (std::uint32_t i = 0; i < count; ++i) {
      __builtin_prefetch(row_ + column_ * std::int64_t{64}, 0, 2);
      if (++column_ < per_row_) continue;
      column_ = 0;
      row_ += row_stride_;
    }
    const std::uint32_t last_row = std::min<std::uint32_t>(c_row_ + rows_per_step_, tile_rows);
    for (; c_row_ < last_row; ++c_row_, c_ += ldc_) {
      __builtin_prefetch(c_, 1);
      __builtin_prefetch(c_ + side, 1);
    }
  }

 private:
  const std::byte* row_;
  std::int64_t row_stride_;
  std::uint32_t column_, per_row_, num_lines_, lines_per_step_, rows_per_step_, c_row_ = 0;
  const float* c_;
  std::int64_t ldc_;
};

template <bool has_lower>
void multiply_rows(const TileArgs& t) {
  constexpr std::int64_t a_bytes = row_stride * sizeof(float), b_bytes = tile_columns * sizeof(float);
  const bool is_whole = t.rows == tile_rows;
  // Rows of a tile that has fewer are summed elsewhere, in the same order.
  alignas(64) float sums[tile_rows * tile_columns];
  float* c = is_whole ? t.c : sums;
  const std::int64_t ldc = is_whole ? t.ldc : tile_columns, depth = t.depth;
  if (t.adds) {
    if (!is_whole) copy_rows(t.rows, t.c, t.ldc, sums, tile_columns);
    load_sums<has_lower>(c, ldc);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const float *a = t.a, *b = t.b;
  Ahead ahead(t);
  for (std::int64_t l = 0; l < depth; l += side) {
    ahead.step();
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, b_bytes);
    _tile_loadd(7, b + side, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (has_lower) {
      _tile_loadd(5, a + side * row_stride, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    a += side;
    b += std::int64_t{side} * tile_columns;
  }
  store_sums<has_lower>(c, ldc);
  if (!is_whole) copy_rows(t.rows, sums, tile_columns, t.c, t.ldc);
}

void open_registers() { _tile_loadconfig(&config); }
void close_registers() { _tile_release(); }
void multiply(const TileArgs& t) { t.rows > side ? multiply_rows<true>(t) : multiply_rows<false>(t); }

constexpr GemmKernels kernels = {.dtype = DType::bfloat16,
                                 .tile_rows = tile_rows,
                                 .tile_columns = tile_columns,
                                 .row_grain = tile_rows,
                                 .panel_rows = 0,
                                 .per_unit = 2,
                                 .grain = side,
                                 .most_units = most_units,
                                 .most_blocks = 24,
                                 .keeps_blocks = true,
                                 .row_stride = row_stride,
                                 .most_tiles = 8,
                                 .pack_a_rows = pack_a_rows<row_stride, side>,
                                 .pack_a_columns = pack_a_columns<row_stride>,
                                 .pack_b_rows = pack_rows<tile_columns, side>,
                                 .pack_b_columns = pack_columns<tile_columns, side>,
                                 .multiply = multiply,
                                 .open = open_registers,
                                 .close = close_registers};

/// Linux saves the registers' 8 KiB only for processes that ask for them.
bool system_allows_tiles() {
  constexpr long request_permission = 0x1023, tile_data = 18;  // arch_prctl(2)
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

}  // namespace
}  // namespace echelon

HWY_POP_ATTRIBUTES

namespace echelon {

const GemmKernels* amx_kernels() {
  static const bool has_tiles = this_processor().has_amx && system_allows_tiles();
  return has_tiles && kernels_use_avx512() ? &kernels : nullptr;
}

}  // namespace echelon
#else
namespace echelon {
const GemmKernels* amx_kernels() { return nullptr; }
}  // namespace echelon
#endif
