#include "context/key_traffic.h"

#include "base/error.h"
#include "context/brute_force.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace echelon {
namespace {

bool sees_any(std::span<const std::int32_t> queries, std::int32_t key, const Visibility& visibility) {
  return std::ranges::any_of(queries, [&](std::int32_t query) { return sees(query, key, visibility); });
}

void expect_counts(const TokenLists& lists, const Visibility& visibility) {
  const int cp = lists.cp();
  std::vector<std::int64_t> pairs(static_cast<std::size_t>(cp));
  KeyTraffic traffic;
  count_pairs(lists, visibility, pairs);
  traffic.count(lists, visibility);
  for (int rank = 0; rank < cp; ++rank) {
    std::int64_t expected_pairs = 0;
    for (const std::int32_t query : lists.positions(rank))
      for (std::int32_t key = 0; key < visibility.documents.back(); ++key)
        expected_pairs += sees(query, key, visibility) ? 1 : 0;
    EXPECT_EQ(pairs[static_cast<std::size_t>(rank)], expected_pairs);
    for (int hop = 1; hop < cp; ++hop) {
      std::int64_t seen = 0, ring = 0;
      for (const std::int32_t key : lists.positions(rank)) {
        bool is_seen_later = false;
        for (int later = hop; later < cp; ++later)
          is_seen_later |= sees_any(lists.positions((rank + later) % cp), key, visibility);
        ring += is_seen_later ? 1 : 0;
        seen += sees_any(lists.positions((rank + hop) % cp), key, visibility) ? 1 : 0;
      }
      EXPECT_EQ(traffic.seen(rank, (rank + hop) % cp), seen) << "from " << rank << " hop " << hop;
      EXPECT_EQ(traffic.ring(rank, hop), ring) << "from " << rank << " hop " << hop;
    }
  }
}

TEST(KeyTraffic, EqualsAllPairsByThemselves) {
  for (const LoadBalancer balancer : load_balancers)
    for (const std::int64_t T : {7, 16, 29})
      for (const int cp : {1, 2, 3, 5})
        for (const unsigned seed : {1U, 3U, 4U})
          for (const std::int64_t window : {0, 3}) {
            SCOPED_TRACE(fmt::format("{} T {} cp {} seed {} window {}", name_of(balancer), T, cp, seed, window));
            const DocumentOffsets documents = drawn_documents(T, seed);
            expect_counts(lists_of({.seq_len = T, .cp = cp, .balancer = balancer}, documents), {documents, window});
          }
}

// One document, head and tail: a rank's tail sees all that is before it. Chunks of 2 over 2 ranks: rank 0 has 0-1 and
// 6-7, rank 1 has 2-5. Rank 0 sees all of rank 1, which sees only the head of rank 0.
TEST(KeyTraffic, OfHeadAndTailByHand) {
  KeyTraffic traffic;
  const DocumentOffsets documents = {0, 8};
  traffic.count(lists_of({.seq_len = 8, .cp = 2}, {}), {documents});
  EXPECT_EQ(traffic.seen(1, 0), 4);
  EXPECT_EQ(traffic.seen(0, 1), 2);
}

// Heads and tails of one document of 2^24 tokens: rank r has n positions from r n on and n from T - (r + 1) n on, where
// n = T / 2 cp, so every rank has 2 n (T + 1) / 2 pairs, more than 2^31.
TEST(KeyTraffic, CountsPairsOfLongSequencesExactly) {
  constexpr std::int64_t T = std::int64_t{1} << 24;
  const DocumentOffsets documents = {0, T};
  std::vector<std::int64_t> pairs(4);
  count_pairs(lists_of({.seq_len = T, .cp = 4}, {}), {documents}, pairs);
  for (const std::int64_t of_rank : pairs) EXPECT_EQ(of_rank, T / 4 * (T + 1) / 2);
}

// A ring passes a block from rank to rank. The pieces of a long document are in the order of the ranks, so its first
// piece is needed by the next ranks, and its last by none.
TEST(KeyTraffic, OfPackedEndsSoonInARing) {
  DocumentOffsets documents = {0, 4096};
  for (int i = 0; i < 40; ++i) documents.push_back(documents.back() + 100);
  KeyTraffic traffic;
  traffic.count(lists_of({.seq_len = documents.back(), .cp = 8, .balancer = LoadBalancer::packed}, documents),
                {documents});
  std::int64_t seen = 0, ring = 0;
  for (int source = 0; source < 8; ++source)
    for (int i = 0; i < 8; ++i) {
      seen += traffic.seen(source, i);
      ring += traffic.ring(source, i);
    }
  EXPECT_LE(ring, seen + seen / 8) << "a row that is passed on to a rank that does not need it counts only in the ring";
}

}  // namespace
}  // namespace echelon
