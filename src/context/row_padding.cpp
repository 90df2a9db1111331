#include "context/row_padding.h"

#include "context/key_blocks.h"

#include <algorithm>

namespace echelon {
namespace {

/// Among the first `count` rows of sequences, the last rows of each of which are padding.
std::int64_t padding_before(std::int64_t count, const RowPadding::Rows& sequence) {
  const std::int64_t num_tokens = sequence.all - sequence.padding;
  return count / sequence.all * sequence.padding + std::max<std::int64_t>(0, count % sequence.all - num_tokens);
}

RowPadding::Rows padding_of(const LocalRows& local, const RowPadding::Rows& sequence) {
  const std::int64_t rows = local.num_sequences * sequence.all / local.num_parts, first = local.place * rows;
  return {.padding = padding_before(first + rows, sequence) - padding_before(first, sequence), .all = rows};
}

}  // namespace

std::int64_t RowPadding::bytes(const RowBytes& rows) const {
  std::int64_t sum = 0;
  for (std::size_t kind = 0; kind < num_row_kinds; ++kind)
    sum += rows.of_kind[kind] / of_kind[kind].all * of_kind[kind].padding;
  return sum;
}

RowPadding row_padding(const TokenSplit& split, const KeyExchange& exchange, int rank, const LocalRows& local) {
  const KeyBlockSizes blocks(split, exchange, rank);
  const int u = exchange.head_ranks;
  const RowPadding::Rows sequence = {.padding = rows_per_rank(split) - least_tokens(split, rank, 1),
                                     .all = rows_per_rank(split)};
  RowPadding::Rows queries = {.all = blocks.num_query_rows()};
  if (!blocks.queries_are_whole()) queries.padding = queries.all - least_tokens(split, rank / u * u, u);
  return {{sequence, padding_of(local, sequence), queries}};
}

RowPadding most_row_padding(const TokenSplit& split, const KeyExchange& exchange, LocalRows local) {
  int rank = 0;
  for (int other = 1; other < split.cp; ++other)
    if (least_tokens(split, other, 1) < least_tokens(split, rank, 1)) rank = other;
  RowPadding most = row_padding(split, exchange, rank, local);
  for (local.place = 0; local.place < local.num_parts; ++local.place) {
    const RowPadding::Rows there = padding_of(local, most.of(RowKind::sequence));
    RowPadding::Rows& rows = most.of_kind[static_cast<std::size_t>(RowKind::local)];
    if (there.padding > rows.padding) rows = there;
  }
  return most;
}

}  // namespace echelon
