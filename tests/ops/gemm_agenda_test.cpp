// The order of a product's shares: each is claimed once, and what it waits for is claimed before it.
#include "ops/cpu/gemm_agenda.h"

#include "ops/cpu/gemm_splits.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <tuple>

namespace echelon {
namespace {

class Agendas : public testing::TestWithParam<GemmAgenda::Counts> {};

using Place = std::tuple<std::int64_t, bool, std::int64_t>;  // section, of columns, index

/// Packed panels of so many sections are there at a time.
std::int64_t num_buffers(const GemmAgenda::Counts& counts) { return counts.late_shares > 0 ? 2 : 1; }

bool needs(const GemmAgenda::Share& share, const Place& earlier, std::int64_t num_buffers) {
  const auto [section, is_of_columns, index] = earlier;
  if (is_of_columns) return section < share.section + (share.is_of_columns ? 0 : 1);
  return share.is_of_columns ? section <= share.section - num_buffers : section < share.section && index == share.index;
}

TEST_P(Agendas, HaveEveryShareOnceBehindWhatItNeeds) {
  const GemmAgenda agenda(GetParam());
  std::set<Place> open;
  for (std::int64_t section = 0; section < GetParam().sections; ++section) {
    for (std::int64_t i = 0; i < GetParam().column_shares; ++i) open.emplace(section, true, i);
    for (std::int64_t i = 0; i < GetParam().row_shares; ++i) open.emplace(section, false, i);
  }
  ASSERT_EQ(agenda.size(), static_cast<std::int64_t>(open.size()));
  for (std::int64_t position = 0; position < agenda.size(); ++position) {
    const GemmAgenda::Share share = agenda[position];
    ASSERT_EQ(open.erase({share.section, share.is_of_columns, share.index}), 1) << position;
    for (const Place& later : open)
      ASSERT_FALSE(needs(share, later, num_buffers(GetParam())))
          << "place " << position << " waits for section " << std::get<0>(later);
  }
}

TEST_P(Agendas, AreWaitedForAsFarAsAShareNeeds) {
  const GemmAgenda agenda(GetParam());
  const std::int64_t buffers = num_buffers(GetParam());
  for (std::int64_t position = 0; position < std::min<std::int64_t>(agenda.size(), 20); ++position) {
    const GemmAgenda::Share share = agenda[position];
    GemmProgress progress(GetParam(), buffers);
    const auto end = [&](const GemmAgenda::Share& earlier) { const GemmProgress::End ends_here(progress, earlier); };
    GemmAgenda::Share last;  // that it needs, if any
    bool has_last = false;
    for (std::int64_t i = 0; i < position; ++i) {
      const GemmAgenda::Share earlier = agenda[i];
      if (!needs(share, {earlier.section, earlier.is_of_columns, earlier.index}, buffers)) continue;
      if (has_last) end(last);
      last = earlier;
      has_last = true;
    }
    std::atomic<bool> has_come = false;
    std::thread waiting([&] {
      progress.await(share);
      has_come = true;
    });
    if (has_last) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      EXPECT_FALSE(has_come) << "place " << position;
      end(last);
    }
    waiting.join();
  }
}

TEST(GemmRowSplits, CoverAllRowsAndEndWithSmallShares) {
  for (const std::int64_t num_rows : {1, 13, 112, 113, 130, 512, 1024, 4096})
    for (const std::int64_t threads : {1, 2, 3, 16}) {
      const GemmRowSplits cuts(num_rows, {.tile_rows = 14, .most_tiles = 8}, threads);
      std::int64_t next = cuts.first_rows().size;
      EXPECT_EQ(cuts.first_rows().first, 0);
      for (std::int64_t i = 0; i < cuts.row_shares(); ++i) {
        EXPECT_EQ(cuts.rows_of(i).first, next);
        EXPECT_GT(cuts.rows_of(i).size, 0);
        next += cuts.rows_of(i).size;
      }
      EXPECT_EQ(next, num_rows) << threads << " threads";
    }
  const GemmRowSplits cuts(1024, {.tile_rows = 14, .most_tiles = 8}, 2);
  EXPECT_NEAR(
      static_cast<double>(cuts.rows_of(cuts.row_shares() - 1).size) / static_cast<double>(cuts.first_rows().size), 0.5,
      0.02);
}

// A tile of matrix registers takes as long with fewer rows, so only the last one of all has fewer.
TEST(GemmRowSplits, AreWholeTilesWhereFewerRowsCostAsMuch) {
  const GemmKernels kernels = {.tile_rows = 32, .row_grain = 32, .most_tiles = 8};
  for (const std::int64_t num_rows : {1, 31, 33, 257, 768, 1000, 50257})
    for (const std::int64_t threads : {1, 2, 3, 16}) {
      const GemmRowSplits cuts(num_rows, kernels, threads);
      std::int64_t num_tiles = 0, next = 0;
      for (std::int64_t share = -1; share < cuts.row_shares(); ++share) {
        const GemmRange rows = share < 0 ? cuts.first_rows() : cuts.rows_of(share);
        const GemmTileRows tiles(rows.size, kernels);
        for (std::int64_t i = 0; i < tiles.size(); ++i, ++num_tiles) {
          EXPECT_EQ(rows.first + tiles[i].first, next);
          next += tiles[i].size;
          EXPECT_TRUE(tiles[i].size == 32 || next == num_rows) << tiles[i].size << " rows before " << next;
        }
      }
      EXPECT_EQ(next, num_rows);
      EXPECT_EQ(num_tiles, (num_rows + 31) / 32) << num_rows << " rows, " << threads << " threads";
    }
}

TEST(GemmTileRows, DifferByOneRowElsewhere) {
  const GemmTileRows tiles(100, GemmKernels{.tile_rows = 14});
  ASSERT_EQ(tiles.size(), 8);
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(tiles[i].first, next);
    EXPECT_EQ(tiles[i].size, i < 4 ? 13 : 12);
    next += tiles[i].size;
  }
}

INSTANTIATE_TEST_SUITE_P(Gemm, Agendas,
                         testing::Values(GemmAgenda::Counts{1, 1, 0, 0}, GemmAgenda::Counts{1, 2, 10, 2},
                                         GemmAgenda::Counts{5, 2, 10, 2}, GemmAgenda::Counts{4, 3, 2, 7},
                                         GemmAgenda::Counts{3, 2, 0, 2}, GemmAgenda::Counts{6, 1, 8, 0}),
                         [](const auto& test) {
                           const GemmAgenda::Counts& n = test.param;
                           return fmt::format("{}sections_{}columns_{}rows_{}late", n.sections, n.column_shares,
                                              n.row_shares, n.late_shares);
                         });

}  // namespace
}  // namespace echelon
