// The queries and blocks of keys of every method, and the order of gathered rows, against the lists of single ranks.
#include "context/key_blocks.h"
#include "context/rank_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

namespace echelon {
namespace {

using Positions = std::vector<std::int32_t>;

Positions positions_of(const TokenLists& lists, int first, int count) {
  std::set<std::int32_t> all;
  for (int rank = first; rank < first + count; ++rank)
    all.insert(lists.positions(rank).begin(), lists.positions(rank).end());
  return {all.begin(), all.end()};
}

Positions as_vector(std::span<const std::int32_t> values) { return {values.begin(), values.end()}; }

struct Expected {
  int query_ranks, key_ranks;
};
Expected expected_of(const KeyExchange& exchange, int cp) {
  switch (exchange.method) {
    case ContextMethod::ring: return {1, 1};
    case ContextMethod::all_gather: return {1, cp};
    case ContextMethod::ulysses: return {cp, cp};
    case ContextMethod::ulysses_ring: return {exchange.head_ranks, exchange.head_ranks};
  }
  return {};
}

void expect_order(const KeyBlocks& blocks, const TokenLists& lists, int first_rank) {
  const Positions keys = as_vector(blocks.keys(lists, blocks.own_block()));
  Positions found;
  for (std::int64_t i = 0; i < blocks.num_gathered_rows(); ++i) {
    const std::int32_t row = blocks.by_position()[static_cast<std::size_t>(i)];
    if (row < 0) continue;
    EXPECT_EQ(std::ssize(found), i) << "padding is last";
    EXPECT_EQ(blocks.by_rank()[static_cast<std::size_t>(row)], i);
    const auto own = static_cast<std::size_t>(row % lists.rows());
    found.push_back(lists.positions(first_rank + static_cast<int>(row / lists.rows()))[own]);
  }
  EXPECT_EQ(found, keys);
  EXPECT_EQ(std::ranges::count_if(blocks.by_rank(), [](std::int32_t row) { return row >= 0; }), std::ssize(keys));
}

TEST(KeyBlocks, AreTheListsOfTheirRanks) {
  for (const LoadBalancer balancer : {LoadBalancer::headtail, LoadBalancer::none, LoadBalancer::striped})
    for (const int cp : {2, 3, 4, 6})
      for (const std::int64_t T : {std::int64_t{cp}, std::int64_t{13}, std::int64_t{48}})
        for (const KeyExchange& exchange : {KeyExchange{ContextMethod::ring, 1},
                                            {ContextMethod::all_gather, 1},
                                            {ContextMethod::ulysses, cp},
                                            {ContextMethod::ulysses_ring, 1},
                                            {ContextMethod::ulysses_ring, 2},
                                            {ContextMethod::ulysses_ring, 3},
                                            {ContextMethod::ulysses_ring, cp}}) {
          if (cp % exchange.head_ranks != 0) continue;
          TokenLists lists;
          const TokenSplit split = {.seq_len = T, .cp = cp, .balancer = balancer, .multiple = 2};
          lists.assign(split);
          const auto [query_ranks, key_ranks] = expected_of(exchange, cp);
          for (int rank = 0; rank < cp; ++rank) {
            KeyBlocks blocks;
            blocks.assign(split, lists, exchange, rank);
            EXPECT_EQ(as_vector(blocks.queries()), positions_of(lists, rank / query_ranks * query_ranks, query_ranks));
            ASSERT_EQ(blocks.num_blocks(), cp / key_ranks);
            for (int block = 0; block < blocks.num_blocks(); ++block)
              EXPECT_EQ(as_vector(blocks.keys(lists, block)), positions_of(lists, block * key_ranks, key_ranks));
            EXPECT_EQ(blocks.own_block(), rank / key_ranks);
            EXPECT_EQ(blocks.queries_are_whole(), query_ranks == cp);
            EXPECT_EQ(blocks.num_query_rows(), query_ranks == cp ? T : query_ranks * lists.rows());
            EXPECT_EQ(blocks.ranks_of_block(), key_ranks);
            EXPECT_EQ(blocks.num_gathered_rows(), std::ssize(blocks.by_position()));
            if (key_ranks > 1) expect_order(blocks, lists, rank / key_ranks * key_ranks);
          }
        }
}

std::int64_t num_pairs_of(std::span<const std::int32_t> queries, std::span<const std::int32_t> keys) {
  std::int64_t pairs = 0;
  for (const std::int32_t query : queries) pairs += std::ranges::count_if(keys, [&](int key) { return key <= query; });
  return pairs;
}

// A plan knows sizes and pairs without the lists.
TEST(RankTokens, AreThoseOfTheLists) {
  for (const LoadBalancer balancer : load_balancers)
    for (const int cp : {2, 3, 4, 6})
      for (const std::int64_t T : {std::int64_t{cp}, std::int64_t{13}, std::int64_t{48}})
        for (const KeyExchange& exchange : {KeyExchange{ContextMethod::ring, 1},
                                            {ContextMethod::all_gather, 1},
                                            {ContextMethod::ulysses, cp},
                                            {ContextMethod::ulysses_ring, 2},
                                            {ContextMethod::ulysses_ring, 3}}) {
          if (cp % exchange.head_ranks != 0) continue;
          const TokenSplit split = {.seq_len = T, .cp = cp, .balancer = balancer, .multiple = 2};
          TokenLists lists;
          lists.assign(split, DocumentOffsets{0, static_cast<std::int32_t>(T)});
          for (int rank = 0; rank < cp; ++rank) {
            const RankTokens tokens = rank_tokens(split, exchange, rank, std::array<std::int64_t, 2>{0, T});
            KeyBlocks blocks;
            blocks.assign(split, lists, exchange, rank);
            EXPECT_EQ(tokens.rows, lists.rows());
            if (!reads_documents(balancer)) {
              EXPECT_EQ(positions_of_rank(split, rank), as_vector(lists.positions(rank)));
            }
            ASSERT_EQ(std::ssize(tokens.pairs), 2 * blocks.num_blocks());
            for (int block = 0; block < blocks.num_blocks(); ++block) {
              const std::int64_t pairs = num_pairs_of(blocks.queries(), blocks.keys(lists, block));
              EXPECT_EQ(tokens.pairs[static_cast<std::size_t>(block)], pairs);
              // A window as long as the sequence is no limit.
              EXPECT_EQ(tokens.pairs[static_cast<std::size_t>(blocks.num_blocks() + block)], pairs);
            }
          }
        }
}

}  // namespace
}  // namespace echelon
