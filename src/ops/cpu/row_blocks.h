// Column sums that are computed in a pass over rows, with the same bits on any number of threads. Blocks of rows have
// separate sums, which are added in the order of the blocks. The number of blocks depends on the rows, not on the
// threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace echelon {

struct RowBlocks {
  std::int64_t num_rows = 0;
  std::int64_t rows_per_block = 0;
  std::int64_t count = 0;  // at most 32

  explicit RowBlocks(std::int64_t rows)
      : num_rows(rows),
        rows_per_block(std::max<std::int64_t>(16, (rows + 31) / 32)),
        count((rows + rows_per_block - 1) / rows_per_block) {}

  [[nodiscard]] std::int64_t first(std::int64_t block) const { return block * rows_per_block; }
  [[nodiscard]] std::int64_t last(std::int64_t block) const { return std::min(num_rows, (block + 1) * rows_per_block); }
};

}  // namespace echelon
