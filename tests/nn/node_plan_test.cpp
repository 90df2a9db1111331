// The rounds of an exchange in two hops against tokens that are moved one by one.
#include "nn/mixture/node_plan.h"
#include "nn/mixture/exchange_bounds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

namespace echelon::node_plan {
namespace {

constexpr int num_nodes = 3, on_node = 2, num_ranks = num_nodes * on_node;
constexpr std::int64_t num_experts = 12, num_tokens = 10, k = 4;

/// By rank, token and place in its choice; -1: none.
using Choices = std::vector<std::vector<std::array<std::int32_t, k>>>;

/// A token of a rank, and its expert.
using Row = std::tuple<int, std::int64_t, std::int32_t>;

std::vector<std::int32_t> in_order(const Choices& choices) {
  std::vector<std::int32_t> values;
  for (int place = 0; place < on_node; ++place)
    for (int node = 0; node < num_nodes; ++node)
      for (const auto& experts : choices[static_cast<std::size_t>(node * on_node + place)])
        values.insert(values.end(), experts.begin(), experts.end());
  return values;
}

NodeSizes sizes_of(int rank, double bound) {
  const auto most = [&](std::int64_t least, double rows) {
    return std::max(least, static_cast<std::int64_t>(bound * rows));
  };
  return {.num_nodes = num_nodes,
          .ranks_per_node = on_node,
          .rank = rank,
          .num_tokens = num_tokens,
          .experts_per_token = k,
          .num_experts = num_experts,
          .most_tokens = most(num_nodes, num_nodes * num_tokens),
          .most_copies = most(num_nodes * k, num_tokens * k),
          .most_rows = most(num_ranks * 2, num_tokens * k)};
}

template <class T>
const T& at(const std::vector<T>& all, std::int64_t i) {
  return all.at(static_cast<std::size_t>(i));
}

/// Carries out both hops of all rounds: at each rank, its rows ordered by expert.
void expect_all_rows_arrive(const Choices& choices, double bound) {
  std::vector<NodePlan> plans;
  for (int rank = 0; rank < num_ranks; ++rank) plans.emplace_back(sizes_of(rank, bound), in_order(choices), 1);
  using Token = std::pair<int, std::int64_t>;
  std::vector<std::map<std::int64_t, Token>> sent(num_ranks);  // by row
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::vector<std::int32_t> slots = at(plans, rank).sent_slots();
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] < 0) continue;
      const std::int64_t token = static_cast<std::int64_t>(i) / std::min<std::int64_t>(k, num_nodes);
      EXPECT_TRUE(sent[static_cast<std::size_t>(rank)].emplace(slots[i], Token(rank, token)).second);
    }
  }
  std::set<Row> arrived;
  std::set<std::tuple<int, std::int64_t, int>> crossed;
  for (int round = 0; round < plans[0].num_rounds(); ++round) {
    // Tokens at their nodes, and copies of them.
    std::vector<std::map<std::int64_t, Row>> copies(num_ranks);
    for (int rank = 0; rank < num_ranks; ++rank) {
      const NodeRound& of = at(plans, rank).round(round);
      const NodeSizes sizes = sizes_of(rank, bound);
      EXPECT_LE(of.num_tokens, sizes.most_tokens);
      EXPECT_LE(of.num_copies, sizes.most_copies);
      EXPECT_LE(of.num_rows, sizes.most_rows);
      for (int node = 0; node < num_nodes; ++node) {
        const int source = node * on_node + rank % on_node;
        const RowPart received = at(of.received_across, node),
                      from = at(at(plans, source).round(round).sent_across, rank / on_node);
        ASSERT_EQ(received.count, from.count);
        for (std::int64_t i = 0; i < from.count; ++i) {
          const Token token = sent[static_cast<std::size_t>(source)].at(from.first + i);
          EXPECT_TRUE(crossed.emplace(token.first, token.second, rank / on_node).second) << "a token crosses twice";
          for (std::int64_t j = 0; j < k; ++j) {
            const std::int32_t slot = at(of.copies, (received.first + i) * k + j);
            if (slot < 0) continue;
            const std::int32_t expert = at(at(choices, token.first), token.second)[static_cast<std::size_t>(j)];
            EXPECT_TRUE(
                copies[static_cast<std::size_t>(rank)].emplace(slot, Row(token.first, token.second, expert)).second);
          }
        }
      }
      EXPECT_EQ(std::ssize(copies[static_cast<std::size_t>(rank)]), of.num_copies);
    }
    for (int rank = 0; rank < num_ranks; ++rank) {
      const NodeRound of = at(plans, rank).round(round);
      std::map<std::int32_t, std::int32_t> expert_of_slot;
      for (int place = 0; place < on_node; ++place) {
        const int source = rank / on_node * on_node + place;
        const RowPart received = at(of.received_inside, place),
                      from = at(at(plans, source).round(round).sent_inside, rank % on_node);
        ASSERT_EQ(received.count, from.count);
        for (std::int64_t i = 0; i < from.count; ++i) {
          const Row row = copies[static_cast<std::size_t>(source)].at(from.first + i);
          EXPECT_EQ(std::get<2>(row) / (num_experts / num_ranks), rank);
          EXPECT_TRUE(arrived.insert(row).second);
          EXPECT_TRUE(expert_of_slot.emplace(at(of.slots, received.first + i), std::get<2>(row)).second);
        }
      }
      for (const auto& [slot, expert] : expert_of_slot) {
        const std::int64_t local = expert % (num_experts / num_ranks);
        EXPECT_GE(slot, at(of.offsets, local));
        EXPECT_LT(slot, at(of.offsets, local + 1));
      }
      EXPECT_EQ(std::ssize(expert_of_slot), of.num_rows);
    }
  }
  std::set<Row> expected;
  for (int rank = 0; rank < num_ranks; ++rank)
    for (std::int64_t token = 0; token < num_tokens; ++token)
      for (const std::int32_t expert : at(at(choices, rank), token))
        if (expert >= 0) expected.emplace(rank, token, expert);
  EXPECT_EQ(arrived, expected);
}

Choices choices_of(const std::function<std::int32_t(int rank, std::int64_t token, std::int64_t j)>& choice) {
  Choices all(num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank)
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      std::array<std::int32_t, k> experts{};
      for (std::int64_t j = 0; j < k; ++j) experts[static_cast<std::size_t>(j)] = choice(rank, token, j);
      all[static_cast<std::size_t>(rank)].push_back(experts);
    }
  return all;
}

TEST(NodePlan, BringsEveryTokenToANodeOnceAndItsRowsToTheirExperts) {
  std::mt19937 random(7);
  const Choices even = choices_of([&](int rank, std::int64_t token, std::int64_t j) {
    return static_cast<std::int32_t>((rank + token + 3 * j) % num_experts);
  });
  const Choices to_one_node =
      choices_of([](int, std::int64_t, std::int64_t j) { return static_cast<std::int32_t>(4 + j); });
  const Choices to_one_expert = choices_of([](int, std::int64_t, std::int64_t j) { return j == 2 ? 7 : -1; });
  const Choices none = choices_of([](int, std::int64_t, std::int64_t) { return -1; });
  const Choices mixed = choices_of([&](int rank, std::int64_t, std::int64_t j) {
    const auto expert = static_cast<std::int32_t>(random() % 3 + 3 * static_cast<std::uint32_t>(j));
    return rank == 1 || random() % 5 == 0 ? -1 : expert;
  });
  for (const Choices& choices : {even, to_one_node, to_one_expert, none, mixed})
    for (const double bound : {0.1, 0.5, 1.0, 10.0}) {
      SCOPED_TRACE(bound);
      expect_all_rows_arrive(choices, bound);
    }
}

// Before choices are known: sizes that fit, and all rows together.
TEST(NodePlan, IsPlannedWithoutChoices) {
  for (const double bound : {0.3, 1.0, 10.0}) {
    std::int64_t rows = 0;
    for (int rank = 0; rank < num_ranks; ++rank) {
      NodeShares shares = {.tokens = std::vector(num_nodes, share_of_tokens(num_experts, num_nodes, k, 1, 1)),
                           .rows = std::vector(num_ranks, 1.0 / num_ranks)};
      const NodeSizes sizes = sizes_of(rank, bound);
      const NodePlan plan(sizes, shares);
      for (int round = 0; round < plan.num_rounds(); ++round) {
        const NodeRound& of = plan.round(round);
        EXPECT_LE(of.num_tokens, sizes.most_tokens);
        EXPECT_LE(of.num_copies, sizes.most_copies);
        EXPECT_LE(of.num_rows, sizes.most_rows);
        for (const RowPart& part : of.sent_across) EXPECT_LE(part.first + part.count, num_tokens * num_nodes);
        rows += of.num_rows;
      }
    }
    EXPECT_NEAR(static_cast<double>(rows), num_ranks * num_tokens * k, 1e-9) << bound;
  }
}

/// Experts of tokens, k each, chosen in proportion to `popularity`; and the largest load of a rank over the mean.
struct RandomLoads {
  std::vector<std::int32_t> choices;
  double most = 0;
};

RandomLoads random_loads(const NodeSizes& sizes, const std::vector<double>& popularity, std::mt19937& random) {
  RandomLoads loads;
  std::uniform_real_distribution<double> uniform(1e-12, 1);
  std::vector<double> rows(static_cast<std::size_t>(sizes.num_ranks()));
  const std::int64_t of_rank = sizes.num_experts / sizes.num_ranks();
  std::vector<std::pair<double, std::int32_t>> order(popularity.size());
  for (std::int64_t token = 0; token < sizes.num_ranks() * sizes.num_tokens; ++token) {
    for (std::size_t e = 0; e < popularity.size(); ++e)
      order[e] = {-std::log(uniform(random)) / popularity[e], static_cast<std::int32_t>(e)};
    std::ranges::partial_sort(order, order.begin() + sizes.experts_per_token);
    for (std::int64_t j = 0; j < sizes.experts_per_token; ++j) {
      loads.choices.push_back(order[static_cast<std::size_t>(j)].second);
      ++rows[static_cast<std::size_t>(loads.choices.back() / of_rank)];
    }
  }
  const double all = std::accumulate(rows.begin(), rows.end(), 0.0);
  loads.most = std::ranges::max(rows) * static_cast<double>(rows.size()) / all;
  return loads;
}

// Of one rank or of all on a node, loads of 1.15 to 1.65 times the mean take at most ceil(largest / mean / bound) + 1
// rounds.
TEST(NodePlan, TakesAsManyRoundsAsLoadsNeed) {
  LayerOptions options;
  options.model.mixture = {.num_experts = 64, .num_experts_per_tok = 6};
  options.seq_len = 256;
  options.ep = 8;
  options.ep_on_node = 4;
  options.dispatch_bound = 1.2;
  std::mt19937 random(3);
  double least = 10, most = 0;
  for (const int num_loaded : {1, 4})  // ranks
    for (const double factor : {1.2, 1.4, 1.6, 1.8, 1.9, 2.0}) {
      const NodeSizes sizes = node_sizes_of(options);
      std::vector<double> popularity(64, 1);
      std::fill(popularity.begin(), popularity.begin() + num_loaded * 8, factor);
      const RandomLoads loads = random_loads(sizes, popularity, random);
      if (loads.most < 1.15 || loads.most > 1.65) continue;
      least = std::min(least, loads.most);
      most = std::max(most, loads.most);
      const NodePlan plan(sizes, loads.choices, 1);
      EXPECT_LE(plan.num_rounds(), std::ceil(loads.most / options.dispatch_bound) + 1)
          << num_loaded << " ranks with " << loads.most << " times the mean";
    }
  EXPECT_LT(least, 1.25);
  EXPECT_GT(most, 1.55);
}

// C(8, 2) / C(12, 2) of all choices miss a third of the experts.
TEST(NodePlan, KnowsHowManyTokensGoToANode) {
  EXPECT_NEAR(share_of_tokens(12, 3, 2, 1, 1), 1 - 28.0 / 66, 1e-12);
  EXPECT_NEAR(share_of_tokens(12, 3, 12, 1, 1), 1, 1e-12);
  // One of three groups is seen, so a node is reached if it is that of its group.
  EXPECT_NEAR(share_of_tokens(12, 3, 2, 3, 1), 1.0 / 3, 1e-12);
  EXPECT_NEAR(share_of_tokens(12, 3, 4, 6, 2), 2.0 / 6 + 2.0 / 6 - 1.0 / 15, 1e-12);
}

}  // namespace
}  // namespace echelon::node_plan
