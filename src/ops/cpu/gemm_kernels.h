// The parts of a matmul: packing blocks of a and b into panels, and multiplying two panels in registers. One table of
// functions per kernel.
//
// A panel holds 4-byte units: float32 values, or, for dot products of bfloat16, two neighbours along k. Padding along k
// is zero; padding along rows or columns is undefined and not stored.
#pragma once

#include "tensor/dtype.h"

#include <algorithm>
#include <cstdint>

namespace echelon {

/// `count` rows or columns of a factor as a panel of `depth` units along k.
struct PackArgs {
  const void* from = nullptr;
  std::int64_t stride = 0;  // between rows of `from`, in its values
  std::int64_t k = 0, count = 0;
  float* into = nullptr;
};

/// Some of the cache lines of a matrix, numbered along its rows.
struct Lines {
  const std::byte* from = nullptr;
  std::int64_t row_stride = 0;  // bytes
  std::uint32_t per_row = 1, first = 0, last = 0;
};

/// c[rows, tile_columns] (+)= a panel b panel, over `depth` units.
struct TileArgs {
  const float *a = nullptr, *b = nullptr;
  float* c = nullptr;
  std::int64_t depth = 0, ldc = 0;
  int rows = 0;
  bool adds = false;
  bool is_by_k = false;  // a's panel is [depth][panel_rows], else [rows][max_depth + padding]
  Lines soon;            // of later tiles' factors
};

struct GemmKernels {
  DType dtype = DType::float32;
  int tile_rows = 0, tile_columns = 0;                // at most so many rows, exactly so many columns
  int panel_rows = 0;                                 // of a panel by k: tile_rows rounded up to whole vectors
  int per_unit = 1;                                   // values along k in a unit
  void (*pack_a_rows)(const PackArgs&) = nullptr;     // k is contiguous: into [count][max_depth + padding]
  void (*pack_a_columns)(const PackArgs&) = nullptr;  // k is strided:    into [depth][panel_rows]
  void (*pack_b_rows)(const PackArgs&) = nullptr;     // k is strided:    into [depth][tile_columns]
  void (*pack_b_columns)(const PackArgs&) = nullptr;  // k is contiguous: into [depth][tile_columns]
  void (*multiply)(const TileArgs&) = nullptr;
};

constexpr std::int64_t max_depth = 768;  // units of k that are multiplied before c is touched
// Rows of k that are packed of all panels before the next ones, where k is strided.
constexpr std::int64_t strip = 32;
// Of a's panels by rows; not a multiple of a page, so that rows share no cache set.
constexpr std::int64_t row_stride = max_depth + 16;

/// Called at every interval-th unit l of a tile: fetches one of the lines wanted soon and, a microsecond before they
/// are needed, the rows of c. The interval is so long that the tile's multiply-adds hide it. Inlined always: a call of
/// a function that only prefetches is, to the compiler, one without effect.
template <int interval, int tile_columns>
[[gnu::always_inline]] inline void prefetch(const TileArgs& t, std::int64_t l) {
  constexpr std::int64_t lead = 32 * interval;  // units
  constexpr int line = 16;                      // float32 values
  const std::int64_t row = std::clamp<std::int64_t>((l - (t.depth - lead)) / interval, 0, t.rows - 1);
  for (int i = 0; i < tile_columns; i += line) __builtin_prefetch(t.c + row * t.ldc + i, 1);
  const std::uint32_t index = t.soon.first + static_cast<std::uint32_t>(l / interval);
  if (index < t.soon.last)
    __builtin_prefetch(t.soon.from + index / t.soon.per_row * t.soon.row_stride + index % t.soon.per_row * 64, 0, 2);
}

/// In float32 arithmetic, by the best instruction set there is (Highway's choice); bfloat16 and float16 are widened as
/// they are packed.
[[nodiscard]] const GemmKernels& float32_kernels();
[[nodiscard]] const GemmKernels& widening_kernels(DType dtype);
/// Whether Highway's kernels use AVX-512. Asking hwy::SupportedTargets() instead would, for a moment, let other threads
/// use more than ECHELON_INSTRUCTION_SET says.
[[nodiscard]] bool kernels_use_avx512();
/// By dot products of bfloat16 pairs with float32 sums; nullptr if the processor has none.
[[nodiscard]] const GemmKernels* bfloat16_kernels();

}  // namespace echelon
