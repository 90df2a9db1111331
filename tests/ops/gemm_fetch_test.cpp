#include "ops/cpu/gemm_fetch.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace echelon {
namespace {

/// The lines that the tiles fetch, as (row, column), each with its number of times.
std::map<std::pair<std::int64_t, std::uint32_t>, int> fetched(std::int64_t num_rows, std::int64_t row_bytes,
                                                              std::int64_t num_tiles) {
  constexpr std::int64_t stride = 4096;
  const std::vector<std::byte> matrix(static_cast<std::size_t>((num_rows + 1) * stride));
  Fetch fetch(matrix.data(), stride, num_rows, row_bytes, num_tiles);
  std::map<std::pair<std::int64_t, std::uint32_t>, int> counts;
  for (std::int64_t tile = 0; tile < num_tiles; ++tile) {
    Lines lines = fetch.next();
    for (std::uint32_t i = 0; i < lines.count; ++i, ++lines.column) {
      if (lines.column == lines.per_row) {
        lines.column = 0;
        lines.row += stride;
      }
      ++counts[{(lines.row - matrix.data()) / stride, lines.column}];
    }
  }
  return counts;
}

TEST(GemmFetch, TilesFetchEveryLineOnce) {
  for (const std::int64_t num_rows : {1, 7, 48})
    for (const std::int64_t row_bytes : {4, 192, 1536})
      for (const std::int64_t num_tiles : {1, 5, 144, 1000}) {
        const auto counts = fetched(num_rows, row_bytes, num_tiles);
        // A row may start anywhere in a line.
        EXPECT_EQ(counts.size(), static_cast<std::size_t>(num_rows * ((row_bytes + 62) / 64 + 1)));
        for (const auto& [line, count] : counts) {
          EXPECT_EQ(count, 1) << line.first << ", " << line.second;
          EXPECT_LT(line.first, num_rows);
        }
      }
}

}  // namespace
}  // namespace echelon
