// Tiles of matmuls that read one factor once, from where it is: where the other one has few rows, packing a factor
// takes as long as multiplying it. Bits are those of packed panels.
#pragma once

#include "ops/cpu/gemm_kernels.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace echelon {

/// Cache lines that are prefetched while tiles are multiplied: of rows, one after the other, in equal bursts.
struct LinesAhead {
  const std::byte* next = nullptr;
  std::int64_t row_skip = 0;  // bytes from the end of a row to the next one
  std::uint32_t per_row = 1, per_burst = 1;
  std::uint32_t left_in_row = 1, left = 0;

  [[gnu::always_inline]] void burst() {
    const std::uint32_t count = std::min(per_burst, left);
    for (std::uint32_t i = 0; i < count; ++i) fetch();
  }
  /// The next one, of those that are left.
  [[gnu::always_inline]] void fetch() {
    __builtin_prefetch(next, 0, 2);
    const bool is_last = --left_in_row == 0;
    next += 64 + (is_last ? row_skip : 0);
    left_in_row = is_last ? per_row : left_in_row;
    --left;
  }
};

/// What is read, or added to, once, and is prefetched for later tiles.
enum class Streamed : std::uint8_t {
  a,         // its rows; those of the next tile follow
  b,         // its rows along k, which are packed for the tiles after this one
  packed_b,  // the same, packed by another tile
  lone_b,    // its rows along k, one vector of each: this tile has all rows of a
  c,         // a's panel is by k
};

/// c[rows, vectors] (+)= a b over `depth` units, as gemm_kernels.h defines them.
struct StreamedTile {
  Streamed streamed = Streamed::a;
  const float* a = nullptr;
  std::int64_t a_stride = 0;  // between rows, or, by k, between units; of lone_b: lone_stride
  float* b = nullptr;         // [unit][vectors][lanes]
  const void* source = nullptr;
  std::int64_t source_stride = 0;  // in its values
  const float* start = nullptr;    // sums so far, none: 0
  std::int64_t start_stride = 0;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  std::int64_t depth = 0;
  int rows = 0, vectors = 0;
  bool is_half = false;  // vectors are of half_lanes
  bool adds = false;
  LinesAhead* ahead = nullptr;     // of b
  const float* later_c = nullptr;  // of as many rows
};

/// from[rows, columns] into into[columns, rows].
struct TransposeArgs {
  const float* from = nullptr;
  std::int64_t from_stride = 0, rows = 0, columns = 0;
  float* into = nullptr;
  std::int64_t into_stride = 0;
};

struct StreamedKernels {
  // Few, since rows that are a multiple of a page apart share a set of the first cache.
  static constexpr int most_rows = 6;
  static constexpr int burst_units = 8;  // between two bursts of lines of b
  static constexpr int lone_stride = 144;

  int narrow_rows = most_rows;                      // at most, of one or two half vectors of sums
  int lone_rows = 0;                                // at most, of Streamed::lone_b
  int lanes = 0, half_lanes = 0, most_vectors = 0;  // half_lanes: 0 where there are none
  bool reads_rows = false;                          // a row of a factor has the format of units
  void (*pack_rows)(const PackArgs&) = nullptr;     // into [unit][most_vectors][lanes]
  // Into as many vectors as their index, from one on.
  std::array<void (*)(const PackArgs&), 5> pack_columns = {}, pack_half_columns = {};
  void (*multiply)(const StreamedTile&) = nullptr;
};

void transpose(const TransposeArgs& args);

/// As GemmKernels of the same dtype; nullptr: none.
[[nodiscard]] const StreamedKernels* streamed_kernels(DType dtype);
[[nodiscard]] const StreamedKernels* streamed_bfloat16_kernels();

}  // namespace echelon
