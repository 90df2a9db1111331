// How evenly the balancers distribute pairs, and how many keys travel, on drawn documents (benchmarks/context_lists
// prints the figures).
#include "context/token_lists.h"

#include "base/error.h"
#include "context/brute_force.h"
#include "context/drawn_lengths.h"
#include "context/key_traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

constexpr int num_sequences = 20;

/// Largest over mean of the ranks' pairs.
double balance_of(const TokenLists& lists, const Visibility& visibility) {
  std::vector<std::int64_t> pairs(static_cast<std::size_t>(lists.cp()));
  count_pairs(lists, visibility, pairs);
  const auto sum = std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0});
  return static_cast<double>(std::ranges::max(pairs)) * lists.cp() / static_cast<double>(sum);
}

/// Rows of keys that ranks receive, of those of whole sequences.
double received_part(const TokenLists& lists, const Visibility& visibility) {
  KeyTraffic traffic;
  traffic.count(lists, visibility);
  std::int64_t received = 0;
  for (int source = 0; source < lists.cp(); ++source)
    for (int destination = 0; destination < lists.cp(); ++destination) received += traffic.seen(source, destination);
  return static_cast<double>(received) / static_cast<double>((lists.cp() - 1) * visibility.documents.back());
}

TEST(Balance, OfPairsIsWithinTwoPercentAndFewKeysTravel) {
  constexpr std::int64_t T = 131072;
  constexpr std::array bounds = {0.65, 0.40, 0.40, 0.01};  // what a simple greedy reaches
  for (const Lengths lengths : all_lengths) {
    double received = 0;
    for (std::uint32_t seed = 0; seed < num_sequences; ++seed) {
      SCOPED_TRACE(fmt::format("{} seed {}", name_of(lengths), seed));
      const DocumentOffsets documents = DrawnLengths(seed).sequence(lengths, T);
      const TokenSplit split = {.seq_len = T, .cp = 8, .balancer = LoadBalancer::per_document};
      EXPECT_LE(balance_of(lists_of(split, documents), {documents}), 1.001);
      TokenSplit of_packed = split;
      of_packed.balancer = LoadBalancer::packed;
      const TokenLists packed = lists_of(of_packed, documents);
      EXPECT_LE(balance_of(packed, {documents}), 1.01);
      for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(std::ssize(packed.positions(rank)), T / 8);
      received += received_part(packed, {documents});
    }
    EXPECT_LE(received / num_sequences, bounds[static_cast<std::size_t>(lengths)]) << name_of(lengths);
  }
}

// A window makes all tokens after it cost the same, which only `packed` counts.
TEST(Balance, OfPackedCountsTheWindow) {
  constexpr std::int64_t T = 32768, window = 1024;
  for (const Lengths lengths : all_lengths)
    for (std::uint32_t seed = 0; seed < num_sequences; ++seed) {
      SCOPED_TRACE(fmt::format("{} seed {}", name_of(lengths), seed));
      const DocumentOffsets documents = DrawnLengths(seed).sequence(lengths, T);
      const TokenSplit split = {.seq_len = T, .cp = 8, .balancer = LoadBalancer::packed, .window = window};
      EXPECT_LE(balance_of(lists_of(split, documents), {documents, window}), 1.02);
    }
}

// One document: `packed` is a head and a tail too, and ranks differ by less than the longest row.
TEST(Balance, OfOneDocumentIsThatOfHeadAndTail) {
  const DocumentOffsets documents = {0, 4096};
  for (const int cp : {2, 3, 8})
    EXPECT_LE(
        balance_of(lists_of({.seq_len = 4096, .cp = cp, .balancer = LoadBalancer::packed}, documents), {documents}),
        1 + 2.0 * cp * cp / 4096);
}

// pytorch/pytorch#189902: documents of 4 and 12 tokens, whose heads and tails were taken in the order of the documents
// and then divided into two halves, gave the ranks 26 and 62 pairs.
TEST(Balance, ReportedOfPyTorch189902) {
  const DocumentOffsets documents = {0, 4, 16};
  const TokenSplit split = {.seq_len = 16, .cp = 2, .balancer = LoadBalancer::per_document};
  std::vector<std::int64_t> pairs(2);
  count_pairs(lists_of(split, documents), {documents}, pairs);
  EXPECT_EQ(pairs, (std::vector<std::int64_t>{44, 44}));
  TokenSplit of_packed = split;
  of_packed.balancer = LoadBalancer::packed;
  std::ranges::fill(pairs, 0);
  count_pairs(lists_of(of_packed, documents), {documents}, pairs);
  EXPECT_LE(std::ranges::max(pairs), 46);
}

// Documents with fewer tokens than ranks, all of one length, would give the last rank most if tokens went round in one
// direction.
TEST(Balance, OfManyTinyDocumentsHasNoFavourite) {
  for (const std::int32_t length : {1, 2, 3, 5, 8, 12, 15}) {
    DocumentOffsets documents = {0};
    while (documents.back() < 240 * 8) documents.push_back(documents.back() + length);
    for (const LoadBalancer balancer : {LoadBalancer::per_document, LoadBalancer::packed}) {
      const TokenSplit split = {.seq_len = documents.back(), .cp = 8, .balancer = balancer};
      EXPECT_LE(balance_of(lists_of(split, documents), {documents}), 1.02) << name_of(balancer) << " of " << length;
    }
  }
}

}  // namespace
}  // namespace echelon
