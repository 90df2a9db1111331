// The rounds of an exchange with ranks of features against rows that are moved one by one.
#include "nn/mixture/feature_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace echelon {
namespace {

constexpr int E = 6;

/// The rank that has it, its expert, and its index there.
using SentRow = std::tuple<int, std::int64_t, std::int64_t>;

/// Rows of each rank for each expert.
using Counts = std::vector<std::vector<std::int32_t>>;

/// By place, then by part.
std::vector<std::int32_t> offsets_of(const Counts& counts, int num_parts, int num_places) {
  std::vector<std::int32_t> offsets;
  for (int place = 0; place < num_places; ++place)
    for (int part = 0; part < num_parts; ++part) {
      offsets.push_back(0);
      for (const std::int32_t count : counts[static_cast<std::size_t>(part * num_places + place)])
        offsets.push_back(offsets.back() + count);
    }
  return offsets;
}

std::vector<SentRow> rows_of(const Counts& counts, int rank) {
  std::vector<SentRow> rows;
  for (std::int64_t expert = 0; expert < E; ++expert)
    for (std::int32_t i = 0; i < counts[static_cast<std::size_t>(rank)][static_cast<std::size_t>(expert)]; ++i)
      rows.emplace_back(rank, expert, std::ssize(rows));
  return rows;
}

void put(std::vector<SentRow>& to, RowPart at, const std::vector<SentRow>& from, RowPart part) {
  ASSERT_EQ(at.count, part.count);
  std::copy_n(from.begin() + part.first, part.count, to.begin() + at.first);
}

/// What each rank has gathered in a round, ordered by expert.
std::vector<std::vector<SentRow>> carried_out(const std::vector<FeaturePlan>& plans, const Counts& counts, int round,
                                              const FeatureSizes& sizes) {
  const int num_ranks = sizes.num_parts * sizes.num_places, L = sizes.num_places;
  std::vector<FeatureRound> rounds;
  for (const FeaturePlan& plan : plans) rounds.push_back(plan.round(round));
  const auto of = [&](int rank) -> const FeatureRound& { return rounds[static_cast<std::size_t>(rank)]; };
  std::vector<std::vector<SentRow>> come, ordered;
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<SentRow>& rows = come.emplace_back(static_cast<std::size_t>(sizes.most_rows));
    EXPECT_LE(of(rank).num_come, sizes.most_rows);
    for (int part = 0; part < sizes.num_parts; ++part) {
      const int source = part * L + rank % L;
      put(rows, of(rank).across.received[static_cast<std::size_t>(part)], rows_of(counts, source),
          of(source).across.sent[static_cast<std::size_t>(rank / L)]);
    }
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<SentRow> rows(static_cast<std::size_t>(sizes.most_gathered()));
    for (int place = 0; place < L; ++place) {
      const int source = rank / L * L + place;
      put(rows, of(rank).gathered[static_cast<std::size_t>(place)], come[static_cast<std::size_t>(source)],
          of(source).given[static_cast<std::size_t>(rank % L)]);
    }
    const FeaturePlan::Order order = plans[static_cast<std::size_t>(rank)].order(round);
    EXPECT_EQ(std::ssize(order.slots), of(rank).num_gathered);
    EXPECT_EQ(order.offsets.back(), of(rank).num_gathered);
    std::vector<SentRow>& sorted = ordered.emplace_back(order.slots.size());
    for (std::size_t i = 0; i < order.slots.size(); ++i) sorted[static_cast<std::size_t>(order.slots[i])] = rows[i];
    for (std::int64_t e = 0; e + 1 < std::ssize(order.offsets); ++e)
      for (std::int32_t i = order.offsets[static_cast<std::size_t>(e)];
           i < order.offsets[static_cast<std::size_t>(e) + 1]; ++i)
        EXPECT_EQ(std::get<1>(sorted[static_cast<std::size_t>(i)]), rank / L * (E / sizes.num_parts) + e);
  }
  return ordered;
}

void expect_all_rows_arrive(const Counts& counts, int num_parts, int num_places, std::int64_t most_rows) {
  FeatureSizes sizes = {.num_parts = num_parts, .num_places = num_places, .num_experts = E, .most_rows = most_rows};
  std::vector<FeaturePlan> plans;
  std::vector<std::int64_t> come(static_cast<std::size_t>(num_parts * num_places));
  for (int rank = 0; rank < num_parts * num_places; ++rank) {
    sizes.rank = rank;
    plans.emplace_back(sizes, offsets_of(counts, num_parts, num_places), 1);
    for (const auto& [source, expert, index] : rows_of(counts, rank))
      ++come[static_cast<std::size_t>(expert / (E / num_parts) * num_places + rank % num_places)];
    EXPECT_EQ(plans.back().num_sent(), std::ssize(rows_of(counts, rank)));
  }
  const std::int64_t most = *std::ranges::max_element(come);
  std::vector<std::vector<SentRow>> gathered(plans.size());
  for (int round = 0; round < plans[0].num_rounds(); ++round) {
    const auto of_round = carried_out(plans, counts, round, sizes);
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      EXPECT_EQ(plans[rank].num_received(round), std::ssize(of_round[rank]));
      gathered[rank].insert(gathered[rank].end(), of_round[rank].begin(), of_round[rank].end());
    }
  }
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    EXPECT_EQ(plans[rank].num_rounds(), std::max<std::int64_t>(1, (most + most_rows - 1) / most_rows));
    const std::int64_t part = static_cast<std::int64_t>(rank) / num_places;
    std::vector<SentRow> expected;
    for (int source = 0; source < num_parts * num_places; ++source)
      for (const SentRow& row : rows_of(counts, source))
        if (std::get<1>(row) / (E / num_parts) == part) expected.push_back(row);
    std::ranges::sort(gathered[rank]);
    EXPECT_EQ(gathered[rank], expected) << "rank " << rank << ", rounds of " << most_rows;
  }
}

TEST(FeaturePlan, BringsEveryRowToAllRanksOfItsExpert) {
  const Counts mixed = {{3, 0, 2, 5, 1, 1}, {0, 0, 0, 0, 0, 0}, {1, 7, 0, 0, 2, 3},
                        {2, 2, 2, 2, 2, 2}, {0, 4, 0, 1, 9, 0}, {1, 1, 0, 0, 0, 5}},
               to_one(6, {0, 0, 0, 8, 0, 0}), none(6, std::vector<std::int32_t>(E));
  for (const Counts& counts : {mixed, to_one, none})
    for (const auto& [parts, places] : {std::pair{2, 2}, {3, 2}, {2, 3}, {1, 4}, {6, 1}})
      for (const std::int64_t most_rows : {1, 3, 8, 100}) expect_all_rows_arrive(counts, parts, places, most_rows);
}

// SentRow i of those that have come to this rank is the i-th of what each place gives back.
TEST(FeaturePlan, SaysWhereTheAddendsOfARowAre) {
  const Counts counts = {{1, 0, 0, 0, 2, 0}, {0, 0, 0, 0, 0, 0}, {1, 0, 1, 3, 0, 0}, {0, 0, 0, 0, 0, 0}};
  const FeaturePlan plan({.num_parts = 2, .num_places = 2, .rank = 0, .num_experts = E, .most_rows = 8},
                         offsets_of(counts, 2, 2), 1);
  EXPECT_EQ(plan.round(0).num_come, 3);
  EXPECT_EQ(plan.addends(0), (std::vector<std::int32_t>{0, 3, 1, 4, 2, 5}));
}

// What memory and time are planned for.
TEST(FeaturePlan, IsBalancedWithoutCounts) {
  for (const std::int64_t num_rows : {0, 1, 15, 16, 17})
    for (int rank = 0; rank < 6; ++rank) {
      const FeaturePlan plan({.num_parts = 2,
                              .num_places = 3,
                              .rank = rank,
                              .num_experts = E,
                              .num_rows = num_rows,
                              .most_rows = num_rows + 1},
                             std::span<const double>());
      EXPECT_EQ(plan.num_rounds(), 1);
      EXPECT_EQ(plan.num_sent(), num_rows);
      EXPECT_EQ(plan.num_received(0), 3 * num_rows);
      EXPECT_TRUE(plan.order(0).slots.empty());
    }
}

}  // namespace
}  // namespace echelon
