// The rounds of an exchange against rows that are moved one by one.
#include "nn/mixture/exchange_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

constexpr int num_ranks = 4, num_experts = 8, experts_per_rank = num_experts / num_ranks;

/// Rows of each rank for each expert.
using Counts = std::vector<std::vector<std::int32_t>>;

/// Where a row comes from: its rank, and its index there.
using Row = std::pair<int, std::int64_t>;

std::vector<std::int32_t> offsets_of(const Counts& counts) {
  std::vector<std::int32_t> offsets;
  for (const auto& of_rank : counts) {
    offsets.push_back(0);
    for (const std::int32_t count : of_rank) offsets.push_back(offsets.back() + count);
  }
  return offsets;
}

/// All rows for each rank, in the order of the ranks that they come from.
std::vector<std::vector<Row>> all_received(const Counts& counts) {
  std::vector<std::vector<Row>> received(num_ranks);
  for (int source = 0; source < num_ranks; ++source) {
    std::int64_t next = 0;
    for (int expert = 0; expert < num_experts; ++expert)
      for (std::int32_t i = 0; i < counts[static_cast<std::size_t>(source)][static_cast<std::size_t>(expert)]; ++i)
        received[static_cast<std::size_t>(expert / experts_per_rank)].emplace_back(source, next++);
  }
  return received;
}

/// Carries out a round on all ranks: what is in each rank's Q rows afterwards; {-1, 0}: nothing.
std::vector<std::vector<Row>> carried_out(const std::vector<ExchangePlan>& plans, int round, std::int64_t most_rows) {
  std::vector<std::vector<Row>> rows(num_ranks, std::vector<Row>(static_cast<std::size_t>(most_rows), Row{-1, 0}));
  for (int target = 0; target < num_ranks; ++target)
    for (int source = 0; source < num_ranks; ++source) {
      const RowPart sent = plans[static_cast<std::size_t>(source)].round(round).sent[static_cast<std::size_t>(target)],
                    received =
                        plans[static_cast<std::size_t>(target)].round(round).received[static_cast<std::size_t>(source)];
      EXPECT_EQ(sent.count, received.count) << source << " to " << target << ", round " << round;
      EXPECT_GE(received.first, 0);
      EXPECT_LE(received.first + received.count, most_rows);
      for (std::int64_t i = 0; i < std::min(sent.count, received.count); ++i) {
        Row& row = rows[static_cast<std::size_t>(target)][static_cast<std::size_t>(received.first + i)];
        EXPECT_EQ(row.first, -1) << "two rows come to one place";
        row = {source, sent.first + i};
      }
    }
  return rows;
}

void expect_all_rows_arrive(const Counts& counts, std::int64_t most_rows) {
  const std::vector<std::int32_t> offsets = offsets_of(counts);
  std::vector<ExchangePlan> plans;
  for (int rank = 0; rank < num_ranks; ++rank) plans.emplace_back(offsets, num_ranks, rank, most_rows);
  const std::vector<std::vector<Row>> expected = all_received(counts);
  std::int64_t most = 0;
  for (const std::vector<Row>& rows : expected) most = std::max(most, std::ssize(rows));
  std::vector<std::vector<Row>> received(num_ranks);
  for (int round = 0; round < plans[0].num_rounds(); ++round) {
    const std::vector<std::vector<Row>> rows = carried_out(plans, round, most_rows);
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      EXPECT_EQ(plans[rank].first_row(round), round * most_rows);
      for (const Row& row : rows[rank])
        if (row.first >= 0) received[rank].push_back(row);
    }
  }
  EXPECT_EQ(received, expected) << "rounds of " << most_rows;
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    EXPECT_EQ(plans[rank].num_rounds(), std::max<std::int64_t>(1, (most + most_rows - 1) / most_rows));
    EXPECT_EQ(plans[rank].num_received(), std::ssize(expected[rank]));
  }
}

TEST(ExchangePlan, BringsEveryRowOnceInOrder) {
  const Counts mixed = {
      {3, 0, 2, 5, 1, 1, 0, 4}, {0, 0, 0, 0, 0, 0, 0, 0}, {1, 7, 0, 0, 2, 3, 6, 1}, {2, 2, 2, 2, 2, 2, 2, 2}};
  const Counts to_one_expert(num_ranks, {0, 0, 0, 16, 0, 0, 0, 0}), to_one_rank(num_ranks, {0, 0, 0, 0, 9, 7, 0, 0}),
      without_one(num_ranks, {2, 2, 2, 0, 2, 2, 3, 3}), none(num_ranks, std::vector<std::int32_t>(num_experts));
  for (const Counts& counts : {mixed, to_one_expert, to_one_rank, without_one, none})
    for (const std::int64_t most_rows : {1, 3, 15, 16, 17, 64, 1000}) expect_all_rows_arrive(counts, most_rows);
}

// What memory and time are planned for.
TEST(ExchangePlan, IsBalancedWithoutCounts) {
  for (const std::int64_t num_rows : {0, 1, 15, 16, 17}) {
    std::vector<ExchangePlan> plans;
    for (int rank = 0; rank < num_ranks; ++rank)
      plans.push_back(ExchangePlan::balanced(num_rows, num_ranks, rank, num_rows + 1));
    const std::vector<std::vector<Row>> rows = carried_out(plans, 0, num_rows + 1);
    std::vector<Row> all;
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      EXPECT_EQ(plans[rank].num_rounds(), 1);
      EXPECT_EQ(plans[rank].num_received(), num_rows);
      for (const Row& row : rows[rank])
        if (row.first >= 0) all.push_back(row);
    }
    std::ranges::sort(all);
    ASSERT_EQ(std::ssize(all), num_ranks * num_rows);
    for (std::int64_t i = 0; i < std::ssize(all); ++i)
      EXPECT_EQ(all[static_cast<std::size_t>(i)], Row(i / num_rows, i % num_rows));
  }
}

// The shares of the most loaded rank and of those after it, as a prediction counts them.
TEST(ExchangePlan, DividesRowsByShares) {
  const std::vector<double> shares = {0.55, 0.25, 0.2, 0};
  constexpr std::int64_t num_rows = 100, most_rows = 120;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const ExchangePlan plan = ExchangePlan::of_shares(shares, num_rows, rank, most_rows);
    EXPECT_EQ(plan.num_received(), num_ranks * 55);
    EXPECT_EQ(plan.num_rounds(), 2);
    std::vector<std::int64_t> sent(num_ranks, 0);
    for (int round = 0; round < plan.num_rounds(); ++round) {
      const ExchangeRound parts = plan.round(round);
      for (std::size_t other = 0; other < num_ranks; ++other) {
        EXPECT_LE(parts.sent[other].first + parts.sent[other].count, num_rows);
        EXPECT_LE(parts.received[other].first + parts.received[other].count, most_rows);
        sent[other] += parts.sent[other].count;
      }
    }
    for (std::size_t next = 0; next < num_ranks; ++next)
      EXPECT_EQ(sent[(static_cast<std::size_t>(rank) + next) % num_ranks], std::llround(shares[next] * num_rows));
  }
}

// Of few rows experts may keep less than one each: types of layouts need one to follow.
TEST(ExchangePlan, KeepsARowOfFew) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    const ExchangePlan plan = ExchangePlan::of_shares(std::vector<double>(num_ranks, 0.2), 3, rank, 1);
    EXPECT_EQ(plan.num_sent(), 1);
    EXPECT_EQ(plan.num_received(), 1);
    EXPECT_EQ(plan.num_rounds(), 1);
  }
}

}  // namespace
}  // namespace echelon
