#include "context/token_lists.h"

#include "base/error.h"

#include <limits>

namespace echelon {
namespace {

/// Where chunk c of `num_chunks` starts: the first T mod num_chunks chunks hold one more token.
std::int64_t chunk_start(std::int64_t T, std::int64_t num_chunks, std::int64_t c) {
  return c * (T / num_chunks) + std::min(c, T % num_chunks);
}

/// Appends [first, end).
void append_run(std::vector<std::int32_t>& positions, std::int64_t first, std::int64_t end) {
  for (std::int64_t p = first; p < end; ++p) positions.push_back(static_cast<std::int32_t>(p));
}

/// The first cp chunks are on different ranks, and so are the others: ranks differ by one token at most.
void append_headtail(std::vector<std::int32_t>& positions, const TokenSplit& split, int rank) {
  const std::int64_t num_chunks = 2 * std::int64_t{split.cp};
  for (const std::int64_t c : {std::int64_t{rank}, num_chunks - 1 - rank})
    append_run(positions, chunk_start(split.seq_len, num_chunks, c), chunk_start(split.seq_len, num_chunks, c + 1));
}

void append_positions(std::vector<std::int32_t>& positions, const TokenSplit& split, int rank) {
  switch (split.balancer) {
    case LoadBalancer::headtail: return append_headtail(positions, split, rank);
    case LoadBalancer::none:
      return append_run(positions, chunk_start(split.seq_len, split.cp, rank),
                        chunk_start(split.seq_len, split.cp, rank + 1));
    case LoadBalancer::striped:
      for (std::int64_t p = rank; p < split.seq_len; p += split.cp) positions.push_back(static_cast<std::int32_t>(p));
      return;
    case LoadBalancer::per_document:
    case LoadBalancer::packed: break;
  }
  throw Error(fmt::format("parallelism.context_parallel_load_balancer = {} is not supported yet (use headtail)",
                          name_of(split.balancer)));
}

}  // namespace

std::int64_t rows_per_rank(const TokenSplit& split) {
  const std::int64_t rows = (split.seq_len + split.cp - 1) / split.cp;
  return (rows + split.multiple - 1) / split.multiple * split.multiple;
}

void TokenLists::assign(const TokenSplit& split, std::span<const std::int32_t> documents) {
  require(split.cp >= 1 && split.cp <= split.seq_len,
          "parallelism.context_parallel_degree = {} exceeds the {} tokens of a sequence (use at most {})", split.cp,
          split.seq_len, split.seq_len);
  require(split.seq_len <= std::numeric_limits<std::int32_t>::max(),
          "training.seq_len = {} exceeds 2^31 - 1, the largest supported with context parallelism", split.seq_len);
  if (reads_documents(split.balancer)) require_documents_of(split.seq_len, documents);
  rows_ = rows_per_rank(split);
  positions_.clear();
  positions_.reserve(static_cast<std::size_t>(split.seq_len));
  offsets_.assign(1, 0);
  for (int rank = 0; rank < split.cp; ++rank) {
    append_positions(positions_, split, rank);
    offsets_.push_back(std::ssize(positions_));
  }
}

void TokenLists::write_gathered_rows(std::span<std::int32_t> rows) const {
  for (int rank = 0; rank < cp(); ++rank) {
    std::int64_t row = rank * rows_;
    for (const std::int32_t position : positions(rank))
      rows[static_cast<std::size_t>(position)] = static_cast<std::int32_t>(row++);
  }
}

}  // namespace echelon
