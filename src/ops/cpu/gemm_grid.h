// Parts of c that threads compute by themselves. Each packs all that it needs, though others pack some of it too:
// panels that another core has packed are slower to read. Where that would be packed too often, because there are many
// threads or c is small, the threads share packed panels instead (gemm_agenda.h).
#pragma once

#include "ops/cpu/gemm_splits.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace echelon {

class GemmGrid {
 public:
  /// The split of c[m, n] that should take least, by counts of what is packed and multiplied.
  GemmGrid(std::int64_t m, std::int64_t n, const GemmKernels& kernels, std::int64_t threads) : GemmGrid(m, n, kernels) {
    threads_ = threads;
    constexpr double sharing = 0.06;             // of the multiply-adds' time: 0.03 to 0.1 on two threads of a Xeon
    const std::int64_t num_parts = 4 * threads;  // at most: more of them pack more
    double least = relative_time(1, 1) + sharing;
    for (std::int64_t rows = 1; rows <= std::min(num_parts, most_parts(m, tile_rows_)); ++rows)
      for (std::int64_t columns = parts_of(threads, rows);
           columns <= std::min(num_parts / rows, most_parts(n, tile_columns_)); ++columns) {
        const double time = relative_time(rows, columns);
        if (time >= least) continue;
        least = time;
        num_rows_ = rows;
        num_columns_ = columns;
      }
  }

  /// For a thread that computes other matmuls too: at least num_parts, if they have enough tiles, with least packing.
  static GemmGrid of_parts(std::int64_t m, std::int64_t n, const GemmKernels& kernels, std::int64_t num_parts) {
    GemmGrid grid(m, n, kernels);
    const std::int64_t row_parts = grid.most_parts(m, kernels.tile_rows),
                       column_parts = grid.most_parts(n, kernels.tile_columns);
    num_parts = std::min(num_parts, row_parts * column_parts);
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t rows = 1; rows <= std::min(row_parts, num_parts); ++rows) {
      const std::int64_t columns = parts_of(num_parts, rows);
      if (columns > column_parts || grid.packed(rows, columns) >= least) continue;
      least = grid.packed(rows, columns);
      grid.num_rows_ = rows;
      grid.num_columns_ = columns;
    }
    return grid;
  }

  [[nodiscard]] int size() const { return static_cast<int>(num_rows_ * num_columns_); }
  [[nodiscard]] GemmRange rows(int index) const { return part(m_, num_rows_, index % num_rows_, tile_rows_); }
  [[nodiscard]] GemmRange columns(int index) const { return part(n_, num_columns_, index / num_rows_, tile_columns_); }

 private:
  GemmGrid(std::int64_t m, std::int64_t n, const GemmKernels& kernels)
      : m_(m), n_(n), tile_rows_(kernels.tile_rows), tile_columns_(kernels.tile_columns) {}

  /// Of whole tiles, along a side.
  [[nodiscard]] static std::int64_t most_parts(std::int64_t size, std::int64_t tile) {
    constexpr std::int64_t fewest_tiles = 4;
    return std::max<std::int64_t>(1, size / (fewest_tiles * tile));
  }
  /// Values of both factors.
  [[nodiscard]] double packed(std::int64_t rows, std::int64_t columns) const {
    return static_cast<double>(rows * n_ + std::max(columns, parts_of(n_, most_columns)) * m_);
  }

  /// In multiples of the time that the multiply-adds alone take, shared out evenly.
  [[nodiscard]] double relative_time(std::int64_t rows, std::int64_t columns) const {
    const double num_parts = static_cast<double>(rows * columns), threads = static_cast<double>(threads_);
    const double rounds =
        num_parts == 1 ? 1 : static_cast<double>(parts_of(rows * columns, threads_)) * threads / num_parts;
    // Packing a value takes about as long as the multiply-adds of a row of a tile.
    const double packing = static_cast<double>(tile_columns_) * packed(rows, columns) / static_cast<double>(m_ * n_);
    constexpr double late = 0.02;  // of a part: threads do not end at the same time
    return rounds * (1 + packing) + (num_parts == 1 ? 0 : late * threads / num_parts);
  }

  std::int64_t m_, n_, tile_rows_, tile_columns_, threads_ = 1;
  std::int64_t num_rows_ = 1, num_columns_ = 1;
};

}  // namespace echelon
