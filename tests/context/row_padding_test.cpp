// Which rows are padding, against the lists of all ranks, row by row.
#include "context/row_padding.h"

#include "context/brute_force.h"
#include "context/key_blocks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace echelon {
namespace {

const LocalRows two_in_three_parts = {.num_sequences = 2, .num_parts = 3};

/// The rows of a sequence one by one, and so of all: true where no token is.
std::vector<bool> padding_of_rows(const TokenLists& lists, int rank, std::int64_t num_sequences) {
  std::vector<bool> rows;
  for (std::int64_t b = 0; b < num_sequences; ++b)
    for (std::int64_t row = 0; row < lists.rows(); ++row) rows.push_back(row >= std::ssize(lists.positions(rank)));
  return rows;
}

RowPadding counted(const TokenSplit& split, const TokenLists& lists, const KeyExchange& exchange, int rank,
                   const LocalRows& local) {
  KeyBlocks blocks;
  blocks.assign(split, lists, exchange, rank);
  const std::vector<bool> rows = padding_of_rows(lists, rank, local.num_sequences);
  const std::int64_t num_local = std::ssize(rows) / local.num_parts;
  const auto first = rows.begin() + local.place * num_local;
  return {{{{.padding = lists.num_padding(rank), .all = lists.rows()},
            {.padding = std::count(first, first + num_local, true), .all = num_local},
            {.padding = blocks.num_query_rows() - std::ssize(blocks.queries()), .all = blocks.num_query_rows()}}}};
}

void expect_as_counted(const TokenSplit& split, const KeyExchange& exchange) {
  const TokenLists lists = lists_of(split, {});
  std::int64_t most = 0, most_local = 0;
  for (int rank = 0; rank < split.cp; ++rank) {
    most = std::max(most, lists.num_padding(rank));
    for (int place = 0; place < two_in_three_parts.num_parts; ++place) {
      LocalRows local = two_in_three_parts;
      local.place = place;
      const RowPadding expected = counted(split, lists, exchange, rank, local);
      EXPECT_EQ(row_padding(split, exchange, rank, local).of_kind, expected.of_kind) << "rank " << rank;
      most_local = std::max(most_local, expected.of(RowKind::local).padding);
    }
  }
  const RowPadding of_most = most_row_padding(split, exchange, two_in_three_parts);
  EXPECT_EQ(of_most.of(RowKind::sequence).padding, most);
  EXPECT_EQ(of_most.of(RowKind::local).padding, most_local);
}

TEST(RowPadding, IsWhatListsLeave) {
  for (const LoadBalancer balancer : {LoadBalancer::headtail, LoadBalancer::none, LoadBalancer::striped})
    for (const std::int64_t T : {4, 13, 131, 133, 135, 136})
      for (const std::int64_t multiple : {3, 48})
        for (const KeyExchange& exchange : {KeyExchange{ContextMethod::ring, 1},
                                            {ContextMethod::all_gather, 1},
                                            {ContextMethod::ulysses, 4},
                                            {ContextMethod::ulysses_ring, 2}}) {
          SCOPED_TRACE(fmt::format("{} T {} multiple {} u {}", name_of(balancer), T, multiple, exchange.head_ranks));
          expect_as_counted({.seq_len = T, .cp = 4, .balancer = balancer, .multiple = multiple}, exchange);
        }
}

// Which rank has fewer tokens is known with the documents alone: each rank and each group is as that with fewest.
TEST(RowPadding, OfRanksWhoseDocumentsDecideIsAMostThatIsReached) {
  for (const LoadBalancer balancer : {LoadBalancer::per_document, LoadBalancer::packed})
    for (const std::int64_t T : {16, 131, 134})
      for (const KeyExchange& exchange : {KeyExchange{ContextMethod::ring, 1}, {ContextMethod::ulysses_ring, 2}})
        for (const unsigned seed : {1U, 2U, 3U}) {
          const TokenSplit split = {.seq_len = T, .cp = 4, .balancer = balancer};
          const TokenLists lists = lists_of(split, drawn_documents(T, seed));
          std::int64_t most = 0;
          for (int rank = 0; rank < split.cp; ++rank) {
            const RowPadding planned = row_padding(split, exchange, rank, {}),
                             real = counted(split, lists, exchange, rank, {});
            most = std::max(most, real.of(RowKind::sequence).padding);
            for (std::size_t kind = 0; kind < num_row_kinds; ++kind)
              EXPECT_LE(real.of_kind[kind].padding, planned.of_kind[kind].padding);
          }
          EXPECT_EQ(most, row_padding(split, exchange, 0, {}).of(RowKind::sequence).padding);
        }
}

}  // namespace
}  // namespace echelon
