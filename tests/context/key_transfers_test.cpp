#include "context/key_transfers.h"

#include "base/error.h"
#include "context/brute_force.h"
#include "context/key_traffic.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace echelon {
namespace {

struct Ring {
  TokenSplit split;
  KeyExchange exchange;
  DocumentOffsets documents;
};

std::vector<KeyTransfers> rows_of_all(const Ring& ring) {
  const TokenLists lists = lists_of(ring.split, ring.documents);
  const int u = ring.exchange.head_ranks;
  std::vector<KeyTransfers> rows(static_cast<std::size_t>(ring.split.cp / u));
  for (int place = 0; place < std::ssize(rows); ++place) {
    KeyBlocks blocks;
    blocks.assign(ring.split, lists, ring.exchange, place * u);
    rows[static_cast<std::size_t>(place)].assign(lists, blocks, ring.exchange, place * u,
                                                 {ring.documents, ring.split.window});
  }
  return rows;
}

/// Rows of `keys` that some query sees, each pair by itself.
RowRuns runs_of(std::span<const std::int32_t> keys, std::span<const std::int32_t> queries,
                const Visibility& visibility) {
  RowRuns rows;
  for (std::int32_t row = 0; row < std::ssize(keys); ++row) {
    const bool is_seen = std::ranges::any_of(
        queries, [&](std::int32_t query) { return sees(query, keys[static_cast<std::size_t>(row)], visibility); });
    if (is_seen && !rows.empty() && rows.back().end == row)
      ++rows.back().end;
    else if (is_seen)
      rows.push_back({row, row + 1});
  }
  return rows;
}

/// Rows of `block` that some query sees of the ranks `first` ... `last` places on in the ring.
RowRuns seen_from(const Ring& ring, const KeyBlocks& blocks, int block, int first, int last) {
  const TokenLists lists = lists_of(ring.split, ring.documents);
  std::vector<std::int32_t> queries;
  for (int distance = first; distance <= last; ++distance) {
    const auto more = blocks.keys(lists, (block + distance) % blocks.num_blocks());
    queries.insert(queries.end(), more.begin(), more.end());
  }
  return runs_of(blocks.keys(lists, block), queries, {ring.documents, ring.split.window});
}

void expect_rows(const Ring& ring) {
  const std::vector<KeyTransfers> rows = rows_of_all(ring);
  KeyBlocks blocks;
  blocks.assign(ring.split, lists_of(ring.split, ring.documents), ring.exchange, 0);
  const int n = blocks.num_blocks();
  for (int place = 0; place < n; ++place) {
    const KeyTransfers &own = rows[static_cast<std::size_t>(place)],
                       &next = rows[static_cast<std::size_t>((place + 1) % n)];
    for (int distance = 0; distance < n; ++distance) {
      const int block = (place - distance + n) % n;
      SCOPED_TRACE(fmt::format("place {} distance {}", place, distance));
      if (distance + 1 < n) {
        EXPECT_EQ(own.keys(distance).sent, seen_from(ring, blocks, block, distance + 1, n - 1));
        EXPECT_EQ(own.keys(distance).sent, next.keys(distance).received);
      }
      if (distance > 0) {
        EXPECT_EQ(own.gradients(distance).sent, seen_from(ring, blocks, block, 1, distance));
        EXPECT_EQ(own.gradients(distance).sent, next.gradients(distance).received);
      }
    }
  }
}

TEST(KeyTransfers, OfARingAreThoseOfAllPairsByThemselves) {
  using enum ContextMethod;
  for (const LoadBalancer balancer : load_balancers)
    for (const auto& [cp, exchange] : {std::pair(1, KeyExchange{ring, 1}), std::pair(2, KeyExchange{ring, 1}),
                                       std::pair(3, KeyExchange{ring, 1}), std::pair(4, KeyExchange{ulysses_ring, 2}),
                                       std::pair(6, KeyExchange{ulysses_ring, 2}), std::pair(5, KeyExchange{ring, 1})})
      for (const unsigned seed : {1U, 3U, 4U})
        for (const std::int64_t window : {0, 3}) {
          SCOPED_TRACE(fmt::format("{} cp {} seed {} window {}", name_of(balancer), cp, seed, window));
          const TokenSplit split = {.seq_len = 23, .cp = cp, .balancer = balancer, .window = window};
          expect_rows({split, exchange, drawn_documents(23, seed)});
        }
}

// Every rank sends what KeyTraffic counts.
TEST(KeyTransfers, AreAsManyAsAreCounted) {
  using enum ContextMethod;
  const DocumentOffsets documents = {0, 700, 700, 730, 990, 1000};
  for (const LoadBalancer balancer : load_balancers)
    for (const KeyExchange& exchange :
         {KeyExchange{ring, 1}, KeyExchange{ulysses_ring, 2}, KeyExchange{all_gather, 1}}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(balancer), name_of(exchange.method)));
      const Ring ring = {{.seq_len = 1000, .cp = 6, .balancer = balancer}, exchange, documents};
      const int n = ring.split.cp / exchange.head_ranks;
      KeyTraffic traffic;
      traffic.count(lists_of(ring.split, documents), {documents}, exchange.head_ranks);
      ASSERT_EQ(traffic.num_blocks(), n);
      std::vector<std::int64_t> keys(static_cast<std::size_t>(n)), gradients(keys);
      const auto at = [n](int place) { return static_cast<std::size_t>(place % n); };
      for (int source = 0; source < n; ++source)
        for (int hop = 1; hop < n; ++hop) {
          const bool is_gathered = exchange.method == all_gather;
          const std::int64_t seen = traffic.seen(source, (source + hop) % n);
          keys[is_gathered ? at(source) : at(source + hop - 1)] += is_gathered ? seen : traffic.ring(source, hop);
          gradients[at(source + hop)] += is_gathered ? seen : traffic.ring_gradients(source, hop);
        }
      const std::vector<KeyTransfers> rows = rows_of_all(ring);
      for (int place = 0; place < n; ++place) {
        EXPECT_EQ(rows[at(place)].num_keys_sent(), keys[at(place)]) << place;
        EXPECT_EQ(rows[at(place)].num_gradients_sent(), gradients[at(place)]) << place;
      }
    }
}

// Two documents of 4 tokens in contiguous chunks of 2: each document is on two ranks, of which the second sees the
// first's keys. So keys go one hop, and their gradients the rest of the way home.
TEST(KeyTransfers, OfARingByHand) {
  const std::vector<KeyTransfers> rows =
      rows_of_all({{.seq_len = 8, .cp = 4, .balancer = LoadBalancer::none}, {}, {0, 4, 8}});
  const RowRuns all = {{0, 2}}, none;
  EXPECT_EQ(rows[0].keys(0).sent, all);  // to rank 1
  EXPECT_EQ(rows[1].keys(0).sent, none);
  EXPECT_EQ(rows[1].keys(1).sent, none) << "of rank 0, which rank 2 does not see";
  EXPECT_EQ(rows[2].keys(0).sent, all);
  for (int distance = 1; distance < 4; ++distance)
    EXPECT_EQ(rows[static_cast<std::size_t>(distance)].gradients(distance).sent, all) << "of rank 0";
  EXPECT_EQ(rows[2].gradients(1).sent, none) << "of rank 1";
  EXPECT_EQ(rows[0].num_keys_sent() + rows[1].num_keys_sent(), 2);
}

TEST(KeyTransfers, GatherWhatEachRankSees) {
  for (const LoadBalancer balancer : load_balancers)
    for (const int n : {1, 2, 5})
      for (const unsigned seed : {1U, 3U, 4U}) {
        SCOPED_TRACE(fmt::format("{} cp {} seed {}", name_of(balancer), n, seed));
        const Ring ring = {
            {.seq_len = 29, .cp = n, .balancer = balancer}, {ContextMethod::all_gather}, drawn_documents(29, seed)};
        const TokenLists lists = lists_of(ring.split, ring.documents);
        const std::vector<KeyTransfers> rows = rows_of_all(ring);
        for (int rank = 0; rank < n; ++rank)
          for (int distance = 1; distance < n; ++distance) {
            const int peer = (rank + distance) % n;
            const RowRuns seen = runs_of(lists.positions(rank), lists.positions(peer), {ring.documents});
            const KeyTransfers &own = rows[static_cast<std::size_t>(rank)],
                               &other = rows[static_cast<std::size_t>(peer)];
            EXPECT_EQ(own.keys(distance).sent, seen);
            EXPECT_EQ(other.keys(distance).received, seen);
            EXPECT_EQ(other.gradients(distance).sent, seen);
            EXPECT_EQ(own.gradients(distance).received, seen);
          }
      }
}

}  // namespace
}  // namespace echelon
