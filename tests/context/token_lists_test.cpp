#include "context/token_lists.h"

#include "base/error.h"
#include "context/brute_force.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::int64_t>& lengths() {
  static const std::vector<std::int64_t> lengths = {1, 2, 3, 5, 7, 8, 13, 16, 31, 64, 97, 250};
  return lengths;
}

/// Every position is on exactly one rank, lists ascend, and T_r is ceil(T / cp) rounded up.
void expect_split(const TokenSplit& split, std::span<const std::int32_t> documents) {
  const TokenLists lists = lists_of(split, documents);
  std::vector<std::int32_t> all;
  std::int64_t fewest = split.seq_len, most = 0;
  for (int rank = 0; rank < split.cp; ++rank) {
    const auto positions = lists.positions(rank);
    EXPECT_TRUE(std::ranges::is_sorted(positions));
    EXPECT_EQ(lists.num_padding(rank), lists.rows() - std::ssize(positions));
    fewest = std::min(fewest, std::ssize(positions));
    most = std::max(most, std::ssize(positions));
    all.insert(all.end(), positions.begin(), positions.end());
  }
  std::ranges::sort(all);
  std::vector<std::int32_t> every(static_cast<std::size_t>(split.seq_len));
  std::iota(every.begin(), every.end(), 0);
  EXPECT_EQ(all, every);
  EXPECT_EQ(most, (split.seq_len + split.cp - 1) / split.cp) << "the fullest rank";
  EXPECT_LE(most - fewest, 1);
  EXPECT_EQ(lists.rows() % split.multiple, 0);
  EXPECT_LT(lists.rows() - most, split.multiple);
}

TEST(TokenLists, HoldEveryPositionOnceInEqualNumbers) {
  for (const LoadBalancer balancer : load_balancers)
    for (const std::int64_t T : lengths())
      for (int cp = 1; cp <= std::min<std::int64_t>(T, 9); ++cp)
        for (const unsigned seed : {1U, 2U, 3U}) {
          SCOPED_TRACE(fmt::format("{} T {} cp {} seed {}", name_of(balancer), T, cp, seed));
          expect_split({.seq_len = T, .cp = cp, .balancer = balancer, .multiple = seed}, drawn_documents(T, seed));
        }
}

/// Under the causal mask, documents and a window: by rank.
std::vector<std::int64_t> pairs_of(const TokenSplit& split, const Visibility& visibility) {
  const TokenLists lists = lists_of(split, visibility.documents);
  std::vector<std::int64_t> pairs(static_cast<std::size_t>(split.cp), 0);
  for (int rank = 0; rank < split.cp; ++rank)
    for (const std::int32_t query : lists.positions(rank))
      for (std::int32_t key = 0; key <= query; ++key)
        pairs[static_cast<std::size_t>(rank)] += sees(query, key, visibility) ? 1 : 0;
  return pairs;
}

// Documents of 2 and 7 tokens on 4 ranks: head and tail of each would give rank 0 the pairs of 1 and of 1, 5 and 7
// tokens, 14 in all, where a rank of one document of 9 tokens has 12 at most.
TEST(TokenLists, GiveNoRankMorePairsThanOneDocumentHas) {
  const DocumentOffsets whole = {0, 9}, two = {0, 2, 9};
  TokenSplit split = {.seq_len = 9, .cp = 4, .balancer = LoadBalancer::per_document};
  EXPECT_THAT(pairs_of(split, {whole}), ElementsAre(12, 11, 11, 11));
  EXPECT_LE(std::ranges::max(pairs_of(split, {two})), 12);
}

TEST(TokenLists, GiveNoRankMorePairsForAnyDocumentsAndWindows) {
  for (const LoadBalancer balancer : {LoadBalancer::per_document, LoadBalancer::packed})
    for (const std::int32_t T : {7, 9, 10})
      for (const int cp : {2, 3, 4})
        for (const std::int64_t window : {0, 3, 4, 6})
          for (unsigned boundaries = 0; boundaries < 1U << (T - 1); ++boundaries) {
            DocumentOffsets documents = {0};
            for (std::int32_t i = 1; i < T; ++i)
              if ((boundaries >> (i - 1) & 1U) != 0) documents.push_back(i);
            documents.push_back(T);
            const DocumentOffsets whole = {0, T};
            for (const bool is_other : {false, true}) {
              const TokenSplit split = {.seq_len = T,
                                        .cp = cp,
                                        .balancer = balancer,
                                        .window = is_other ? 0 : window,
                                        .other_window = is_other ? window : 0};
              ASSERT_THAT(pairs_of(split, {documents, window}),
                          testing::Pointwise(testing::Le(), pairs_of(split, {whole, window})))
                  << name_of(balancer) << " T " << T << " cp " << cp << " window " << window << " boundaries "
                  << boundaries;
            }
          }
}

// The chunks of 11 tokens over 2 ranks: 0-2, 3-5, 6-8, 9-10.
TEST(TokenLists, HeadtailGivesEachRankAChunkFromBothEnds) {
  const TokenLists lists = lists_of({.seq_len = 11, .cp = 2}, {});
  EXPECT_THAT(lists.positions(0), ElementsAre(0, 1, 2, 9, 10));
  EXPECT_THAT(lists.positions(1), ElementsAre(3, 4, 5, 6, 7, 8));
  EXPECT_EQ(lists.num_padding(0), 1);
}

TEST(TokenLists, ContiguousAndStripedAreWhatTheirNamesSay) {
  const TokenLists contiguous = lists_of({.seq_len = 5, .cp = 3, .balancer = LoadBalancer::none}, {});
  EXPECT_THAT(contiguous.positions(0), ElementsAre(0, 1));
  EXPECT_THAT(contiguous.positions(1), ElementsAre(2, 3));
  EXPECT_THAT(contiguous.positions(2), ElementsAre(4));
  const TokenLists striped = lists_of({.seq_len = 5, .cp = 3, .balancer = LoadBalancer::striped}, {});
  EXPECT_THAT(striped.positions(1), ElementsAre(1, 4));
}

TEST(TokenLists, PairsOfARankNeedNoList) {
  for (const LoadBalancer balancer : {LoadBalancer::headtail, LoadBalancer::none, LoadBalancer::striped})
    for (const std::int64_t T : lengths())
      for (int cp = 1; cp <= std::min<std::int64_t>(T, 9); ++cp) {
        const TokenSplit split = {.seq_len = T, .cp = cp, .balancer = balancer};
        const TokenLists lists = lists_of(split, {});
        std::vector<std::int64_t> counted;
        for (int rank = 0; rank < cp; ++rank) {
          counted.push_back(0);
          for (const std::int32_t query : lists.positions(rank)) counted.back() += query + 1;
        }
        EXPECT_EQ(causal_pairs(split), counted) << name_of(balancer) << " T " << T << " cp " << cp;
      }
}

// Rows of gathered blocks, read in that order, are the sequence.
TEST(TokenLists, GatheredRowsAreInOrderByTheirIndex) {
  const TokenLists lists = lists_of({.seq_len = 23, .cp = 4, .multiple = 4}, {});
  std::vector<std::int32_t> gathered(static_cast<std::size_t>(4 * lists.rows()), -1), rows(23);
  for (int rank = 0; rank < 4; ++rank) std::ranges::copy(lists.positions(rank), gathered.begin() + rank * lists.rows());
  lists.write_gathered_rows(rows);
  for (std::int32_t position = 0; position < 23; ++position)
    EXPECT_EQ(gathered[static_cast<std::size_t>(rows[static_cast<std::size_t>(position)])], position);
}

TEST(TokenLists, RefuseMoreRanksThanTokensAndForeignDocuments) {
  TokenLists lists;
  const auto refusal = [&](const TokenSplit& split, const DocumentOffsets& documents) -> std::string {
    try {
      lists.assign(split, documents);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({.seq_len = 3, .cp = 4}, {}), HasSubstr("context_parallel_degree = 4"));
  const TokenSplit packed = {.seq_len = 8, .cp = 2, .balancer = LoadBalancer::packed};
  EXPECT_THAT(refusal(packed, {0, 7}), HasSubstr("must rise from 0 to 8"));
  EXPECT_THAT(refusal(packed, {0, 5, 3, 8}), HasSubstr("must rise from 0 to 8"));
}

}  // namespace
}  // namespace echelon
