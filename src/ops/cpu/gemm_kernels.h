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

/// `count` cache lines of a matrix, row after row.
struct Lines {
  const std::byte* row = nullptr;  // of the first one, which is its line `column`
  std::int64_t row_stride = 0;     // bytes
  std::uint32_t column = 0, per_row = 1, count = 0;
};

/// c[rows, tile_columns] (+)= a panel b panel, over `depth` units.
struct TileArgs {
  const float *a = nullptr, *b = nullptr;
  float* c = nullptr;
  std::int64_t depth = 0, ldc = 0;
  int rows = 0;
  bool adds = false;
  bool is_by_k = false;  // a's panel is [depth][panel_rows], else [rows][row_stride]
  Lines soon;            // of later tiles' factors
  float* next_c = nullptr;
};

struct StreamedKernels;

struct GemmKernels {
  DType dtype = DType::float32;
  int tile_rows = 0, tile_columns = 0;                // at most so many rows, exactly so many columns
  int row_grain = 1;                                  // rows of a tile that cost as much as one
  int panel_rows = 0;                                 // of a panel by k: tile_rows rounded up to whole vectors, or
                                                      // 0: a's panels are by rows always
  int per_unit = 1;                                   // values along k in a unit
  int grain = 1;                                      // units of a panel are a multiple of it, the last ones zero
  std::int64_t most_units = 0;                        // of k that are multiplied before c is touched
  std::int64_t most_blocks = 4;                       // of so many units, packed of b together, where c is narrow
  bool keeps_blocks = false;                          // and where it is not
  std::int64_t row_stride = 0;                        // of a's panels by rows
  std::int64_t most_tiles = 0;                        // in the rows of a block of c
  void (*pack_a_rows)(const PackArgs&) = nullptr;     // k is contiguous: into [count][row_stride]
  void (*pack_a_columns)(const PackArgs&) = nullptr;  // k is strided:    into [depth][panel_rows], or as above
  void (*pack_b_rows)(const PackArgs&) = nullptr;     // k is strided:    into [depth][tile_columns]
  void (*pack_b_columns)(const PackArgs&) = nullptr;  // k is contiguous: into [depth][tile_columns]
  void (*multiply)(const TileArgs&) = nullptr;
  void (*open)() = nullptr, (*close)() = nullptr;  // around multiply() of one thread, where they exist
  // For factors that are multiplied without being packed, where they exist.
  const StreamedKernels* (*streamed)() = nullptr;
};

/// The thread multiplies with these kernels.
class KernelsInUse {
 public:
  explicit KernelsInUse(const GemmKernels& kernels) : kernels_(kernels) {
    if (kernels_.open != nullptr) kernels_.open();
  }
  ~KernelsInUse() {
    if (kernels_.close != nullptr) kernels_.close();
  }
  KernelsInUse(const KernelsInUse&) = delete;
  KernelsInUse& operator=(const KernelsInUse&) = delete;

 private:
  const GemmKernels& kernels_;
};

// Rows of k that are packed of all panels before the next ones, where k is strided.
constexpr std::int64_t strip = 32;
/// Of a's panels by rows; not a multiple of a page, so that rows share no cache set.
constexpr std::int64_t row_stride_of(std::int64_t most_units) { return most_units + 16; }

/// Prefetches while a tile is multiplied: lines of later factors in equal bursts over all of its units, and the rows of
/// c some bursts before its end. One prefetch every few units was slower, since its branches and addresses were
/// computed as often.
template <int rows, int tile_columns>
class TilePrefetch {
 public:
  static constexpr std::int64_t interval = 32;  // units between two bursts

  explicit TilePrefetch(const TileArgs& t) : t_(t), lines_(t.soon) {
    const auto num_bursts = static_cast<std::uint32_t>((t.depth + interval - 1) / interval);
    per_burst_ = (lines_.count + num_bursts - 1) / num_bursts;
  }

  /// Before the units that start with `first`, a multiple of the interval. Inlined always: a call of a function that
  /// only prefetches is, to the compiler, one without effect.
  [[gnu::always_inline]] void burst(std::int64_t first) {
    const std::uint32_t count = std::min(per_burst_, lines_.count);
    lines_.count -= count;
    for (std::uint32_t i = 0; i < count; ++i) {
      __builtin_prefetch(lines_.row + lines_.column * std::int64_t{64}, 0, 2);
      if (++lines_.column < lines_.per_row) continue;
      lines_.column = 0;
      lines_.row += lines_.row_stride;
    }
    // The rows of c about a microsecond before they are needed, in some bursts, or the first ones of a short tile.
    constexpr std::int64_t lead = 10, bursts_of_c = 4, line = 16;  // bursts; float32 values
    const std::int64_t burst_of_c = std::min((t_.depth - 1) / interval, lead) - (t_.depth - first - 1) / interval;
    if (burst_of_c < 0 || burst_of_c >= bursts_of_c) return;
    for (std::int64_t i = rows * burst_of_c / bursts_of_c; i < rows * (burst_of_c + 1) / bursts_of_c; ++i)
      for (std::int64_t j = 0; j < tile_columns; j += line) __builtin_prefetch(t_.c + i * t_.ldc + j, 1);
  }

 private:
  const TileArgs& t_;
  Lines lines_;
  std::uint32_t per_burst_ = 0;
};

/// In float32 arithmetic, by the best instruction set there is (Highway's choice); bfloat16 and float16 are widened as
/// they are packed.
[[nodiscard]] const GemmKernels& float32_kernels();
[[nodiscard]] const GemmKernels& widening_kernels(DType dtype);
/// Whether Highway's kernels use AVX-512. Asking hwy::SupportedTargets() instead would, for a moment, let other threads
/// use more than ECHELON_INSTRUCTION_SET says.
[[nodiscard]] bool kernels_use_avx512();
/// By dot products of bfloat16 pairs with float32 sums; nullptr if the processor has none.
[[nodiscard]] const GemmKernels* bfloat16_kernels();
/// By AMX's matrix tiles of bfloat16 pairs with float32 sums; nullptr if the processor or its system has none.
[[nodiscard]] const GemmKernels* amx_kernels();

}  // namespace echelon
