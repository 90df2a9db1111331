#include "ops/cpu/gemm_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace echelon {
namespace {

constexpr GemmKernels kernels = {.tile_rows = 6, .tile_columns = 16};

TEST(GemmGrid, PartsCoverEveryValueOnceAndBeginAtTiles) {
  for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {97, 5000}, {4096, 384}, {1000, 1003}})
    for (const std::int64_t threads : {1, 2, 3, 16}) {
      const GemmGrid grid(m, n, kernels, threads);
      std::vector<int> counts(static_cast<std::size_t>(m * n));
      for (int index = 0; index < grid.size(); ++index) {
        const GemmRange rows = grid.rows(index), columns = grid.columns(index);
        EXPECT_EQ(rows.first % kernels.tile_rows, 0);
        EXPECT_EQ(columns.first % kernels.tile_columns, 0);
        for (std::int64_t i = rows.first; i < rows.first + rows.size; ++i)
          for (std::int64_t j = columns.first; j < columns.first + columns.size; ++j)
            ++counts[static_cast<std::size_t>(i * n + j)];
      }
      EXPECT_EQ(std::count(counts.begin(), counts.end(), 1), m * n) << m << " x " << n << " on " << threads;
    }
}

TEST(GemmGrid, SplitsTheSideThatPacksLess) {
  const GemmGrid tall(4096, 384, kernels, 2), wide(384, 4096, kernels, 2);
  ASSERT_GT(tall.size(), 1);
  EXPECT_EQ(tall.columns(tall.size() - 1).size, 384);
  ASSERT_GT(wide.size(), 1);
  EXPECT_EQ(wide.rows(wide.size() - 1).size, 384);
}

TEST(GemmGrid, GivesThreadsEquallyMuch) {
  for (const std::int64_t threads : {2, 3, 5})
    EXPECT_EQ(GemmGrid(4096, 4096, kernels, threads).size() % threads, 0) << threads;
}

TEST(GemmGrid, LeavesOneThreadAndSmallPartsWhole) {
  EXPECT_EQ(GemmGrid(4096, 4096, kernels, 1).size(), 1);
  EXPECT_EQ(GemmGrid(384, 384, kernels, 64).size(), 1);
  EXPECT_EQ(GemmGrid(20, 60, kernels, 2).size(), 1);
}

}  // namespace
}  // namespace echelon
