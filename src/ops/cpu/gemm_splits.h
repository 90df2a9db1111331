// How the matrices of a matmul are split: into bands and blocks of rows, blocks of columns, and blocks of k.
#pragma once

#include "ops/cpu/gemm_kernels.h"

#include <algorithm>
#include <cstdint>

namespace echelon {

constexpr std::int64_t most_columns = 1024;  // of a block of c

inline std::int64_t parts_of(std::int64_t size, std::int64_t most) { return (size + most - 1) / most; }

/// [first, first + size) is part `index` of num_parts nearly equal ones, in multiples of `grain` but for the last.
struct GemmRange {
  std::int64_t first = 0, size = 0;
};
inline GemmRange part(std::int64_t size, std::int64_t num_parts, std::int64_t index, std::int64_t grain = 1) {
  const std::int64_t grains = parts_of(size, grain);
  const std::int64_t first = grains * index / num_parts * grain,
                     last = std::min(size, grains * (index + 1) / num_parts * grain);
  return {first, last - first};
}

/// Rows in as few tiles as possible, in multiples of the grain but for the last tile.
class GemmTileRows {
 public:
  GemmTileRows(std::int64_t rows, const GemmKernels& kernels)
      : rows_(rows), grain_(kernels.row_grain), num_tiles_(parts_of(rows, kernels.tile_rows)) {
    const std::int64_t grains = parts_of(rows, grain_);
    least_ = grains / num_tiles_;
    num_more_ = grains % num_tiles_;
  }
  [[nodiscard]] std::int64_t size() const { return num_tiles_; }
  /// The first ones may have a grain more.
  [[nodiscard]] GemmRange operator[](std::int64_t index) const {
    const std::int64_t first = (index * least_ + std::min(index, num_more_)) * grain_;
    return {first, std::min(rows_ - first, (least_ + (index < num_more_ ? 1 : 0)) * grain_)};
  }

 private:
  std::int64_t rows_, grain_, num_tiles_, least_ = 0, num_more_ = 0;
};

/// The rows of a band: for shares of columns, then for every share of rows. The last ones are half as large as the
/// others, so that threads end together.
struct GemmRowSplits {
  std::int64_t num_rows = 0, grain = 1, num_whole = 1, num_halves = 0;

  GemmRowSplits(std::int64_t rows_in_all, const GemmKernels& kernels, std::int64_t threads)
      : num_rows(rows_in_all), grain(kernels.row_grain) {
    const std::int64_t tile_rows = kernels.tile_rows, num_blocks = parts_of(num_rows, kernels.most_tiles * tile_rows);
    if (num_blocks == 1) return;
    num_whole += std::min(parts_of(num_blocks - 1, threads) * threads, num_rows / tile_rows - 1);
    constexpr std::int64_t fewest_tiles = 2;  // of a half
    if (threads == 1 || num_whole <= 2 * threads || num_rows / num_whole < 2 * fewest_tiles * tile_rows) return;
    num_whole -= threads;
    num_halves = 2 * threads;
  }
  [[nodiscard]] std::int64_t row_shares() const { return num_whole + num_halves - 1; }
  [[nodiscard]] GemmRange first_rows() const { return rows(0); }
  [[nodiscard]] GemmRange rows_of(std::int64_t row_share) const { return rows(1 + row_share); }

 private:
  [[nodiscard]] std::int64_t border(std::int64_t index) const {
    const std::int64_t halves = index + std::min(index, num_whole);
    return index == num_whole + num_halves ? num_rows
                                           : num_rows * halves / (2 * num_whole + num_halves) / grain * grain;
  }
  [[nodiscard]] GemmRange rows(std::int64_t index) const { return {border(index), border(index + 1) - border(index)}; }
};

/// Blocks of k: they depend on k alone, since the bits of every value depend on them.
struct GemmDepths {
  std::int64_t k = 0, per_unit = 1, grain = 1, num_blocks = 0;  // grain: of units, a multiple of which a block has

  [[nodiscard]] GemmRange numbers(std::int64_t block) const { return part(k, num_blocks, block, per_unit * grain); }
  [[nodiscard]] std::int64_t units(std::int64_t block) const {
    return parts_of(numbers(block).size, per_unit * grain) * grain;
  }
};

}  // namespace echelon
