#include "context/key_ranges.h"

#include "base/error.h"
#include "context/brute_force.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace echelon {
namespace {

using testing::ElementsAre;

struct Ranges {
  std::vector<std::int32_t> begin, end;
};

Ranges ranges_of(const QueriesAndKeys& rows, const Visibility& visibility, std::int64_t num_rows) {
  Ranges ranges = {std::vector<std::int32_t>(static_cast<std::size_t>(num_rows), -7),
                   std::vector<std::int32_t>(static_cast<std::size_t>(num_rows), -7)};
  write_key_ranges(rows, visibility, {ranges.begin, ranges.end});
  return ranges;
}

/// Compares every pair of rows with `sees`; returns the number of pairs.
std::int64_t expect_ranges(const QueriesAndKeys& rows, const Visibility& visibility, std::int64_t num_rows) {
  const Ranges ranges = ranges_of(rows, visibility, num_rows);
  EXPECT_TRUE(std::ranges::is_sorted(ranges.begin));
  EXPECT_TRUE(std::ranges::is_sorted(ranges.end));
  std::int64_t pairs = 0;
  for (std::size_t i = 0; i < ranges.begin.size(); ++i) {
    EXPECT_LE(ranges.begin[i], ranges.end[i]);
    for (std::int64_t row = 0; row < num_rows; ++row) {
      const bool is_padding = i >= rows.queries.size() || row >= std::ssize(rows.keys);
      const bool is_seen = !is_padding && sees(rows.queries[i], rows.keys[static_cast<std::size_t>(row)], visibility);
      EXPECT_EQ(row >= ranges.begin[i] && row < ranges.end[i], is_seen) << "query " << i << " row " << row;
      pairs += is_seen ? 1 : 0;
    }
    if (i < rows.queries.size()) continue;
    EXPECT_EQ(ranges.begin[i], ranges.end[i]) << "padding";
    EXPECT_EQ(ranges.end[i], rows.queries.empty() ? 0 : ranges.end[rows.queries.size() - 1]) << "padding";
  }
  EXPECT_EQ(num_pairs(ranges.begin, ranges.end), pairs);
  return pairs;
}

TEST(KeyRanges, EqualAllPairsByThemselves) {
  for (const LoadBalancer balancer : load_balancers)
    for (const std::int64_t T : {1, 2, 7, 16, 29})
      for (const int cp : {1, 2, 3, 5})
        for (const unsigned seed : {1U, 3U, 4U})
          for (const std::int64_t window : {0, 1, 3, 40}) {
            if (cp > T) continue;
            SCOPED_TRACE(fmt::format("{} T {} cp {} seed {} window {}", name_of(balancer), T, cp, seed, window));
            const DocumentOffsets documents = drawn_documents(T, seed);
            const TokenLists lists =
                lists_of({.seq_len = T, .cp = cp, .balancer = balancer, .multiple = 2, .window = window}, documents);
            std::int64_t pairs = 0, all_pairs = 0;
            for (int rank = 0; rank < cp; ++rank)
              for (int source = 0; source < cp; ++source)
                pairs +=
                    expect_ranges({lists.positions(rank), lists.positions(source)}, {documents, window}, lists.rows());
            for (std::size_t d = 0; d + 1 < documents.size(); ++d)
              all_pairs += num_document_pairs(documents[d + 1] - documents[d], window);
            EXPECT_EQ(pairs, all_pairs) << "no pair is lost or computed twice";
          }
}

// By hand: documents 0-3 and 4-9; the rank has 2, 3, 6, 7, the keys are 0, 1, 4, 5, 8.
TEST(KeyRanges, OfAHandmadeCase) {
  const std::vector<std::int32_t> queries = {2, 3, 6, 7}, keys = {0, 1, 4, 5, 8};
  const DocumentOffsets documents = {0, 4, 10};
  const Ranges ranges = ranges_of({queries, keys}, {documents}, 6);
  EXPECT_THAT(ranges.begin, ElementsAre(0, 0, 2, 2, 4, 4));
  EXPECT_THAT(ranges.end, ElementsAre(2, 2, 4, 4, 4, 4));
  const Ranges windowed = ranges_of({queries, keys}, {documents, 2}, 4);
  EXPECT_THAT(windowed.begin, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(windowed.end, ElementsAre(2, 2, 4, 4));
}

TEST(KeyRanges, DocumentsAreThoseOfTheStartsOfTokens) {
  DocumentOffsets offsets = {9, 9};
  const std::vector<std::int32_t> starts = {0, 0, 2, 3, 3, 3};
  find_documents(starts, offsets);
  EXPECT_THAT(offsets, ElementsAre(0, 2, 3, 6));
}

// Documents 0-1, 2, 3-5, of which the rank has 1, 2, 4, 5.
TEST(KeyRanges, PositionsRestartAtEveryDocument) {
  const std::vector<std::int32_t> tokens = {1, 2, 4, 5}, documents = {0, 2, 3, 6};
  std::vector<std::int32_t> ids(6, -1);
  write_document_positions(tokens, documents, ids);
  EXPECT_THAT(ids, ElementsAre(1, 0, 1, 2, 0, 0));
}

}  // namespace
}  // namespace echelon
