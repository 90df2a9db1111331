#include "context/token_lists.h"

#include "base/error.h"
#include "context/documents.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace echelon {
namespace {

/// Where chunk c of `num_chunks` starts: the first T mod num_chunks chunks hold one more token.
std::int64_t chunk_start(std::int64_t T, std::int64_t num_chunks, std::int64_t c) {
  return c * (T / num_chunks) + std::min(c, T % num_chunks);
}

void append_chunks(const TokenSplit& split, std::vector<TokenRun>& runs) {
  const int num_chunks = split.balancer == LoadBalancer::headtail ? 2 * split.cp : split.cp;
  for (int c = 0; c < num_chunks; ++c)
    runs.push_back({static_cast<std::int32_t>(chunk_start(split.seq_len, num_chunks, c)),
                    static_cast<std::int32_t>(chunk_start(split.seq_len, num_chunks, c + 1)),
                    num_chunks == split.cp ? c : std::min(c, num_chunks - 1 - c)});
}

void append_runs_of_one_document(const TokenSplit& split, std::vector<TokenRun>& runs) {
  if (!reads_documents(split.balancer)) return append_chunks(split, runs);
  DocumentLists().append_runs(split, DocumentOffsets{0, static_cast<std::int32_t>(split.seq_len)}, runs);
}

/// Of the queries first, first + step, ... before `end`: query p sees p + 1 keys.
std::int64_t pairs_of_queries(std::int64_t first, std::int64_t end, std::int64_t step) {
  const std::int64_t count = first < end ? (end - first + step - 1) / step : 0;
  return count * (first + 1) + step * (count * (count - 1) / 2);
}

}  // namespace

std::int64_t rows_per_rank(const TokenSplit& split) {
  const std::int64_t rows = (split.seq_len + split.cp - 1) / split.cp;
  return (rows + split.multiple - 1) / split.multiple * split.multiple;
}

std::int64_t least_tokens(const TokenSplit& split, int first_rank, int num_ranks) {
  const std::int64_t T = split.seq_len, cp = split.cp;
  // Lists differ by a token at most: T mod cp ranks have one more, the others in the worst case.
  if (reads_documents(split.balancer))
    return num_ranks * (T / cp) + std::max<std::int64_t>(0, T % cp - (cp - num_ranks));
  const auto chunk = [&](std::int64_t num_chunks, std::int64_t c) {
    return chunk_start(T, num_chunks, c + 1) - chunk_start(T, num_chunks, c);
  };
  std::int64_t tokens = 0;
  for (std::int64_t rank = first_rank; rank < first_rank + num_ranks; ++rank)
    tokens += split.balancer == LoadBalancer::headtail ? chunk(2 * cp, rank) + chunk(2 * cp, 2 * cp - 1 - rank)
                                                       : chunk(cp, rank);  // of stripes too
  return tokens;
}

std::vector<std::int64_t> causal_pairs(const TokenSplit& split) {
  require(!reads_documents(split.balancer), "the token lists of '{}' depend on documents", name_of(split.balancer));
  std::vector<std::int64_t> pairs(static_cast<std::size_t>(split.cp), 0);
  if (split.balancer == LoadBalancer::striped) {
    for (int rank = 0; rank < split.cp; ++rank)
      pairs[static_cast<std::size_t>(rank)] = pairs_of_queries(rank, split.seq_len, split.cp);
    return pairs;
  }
  std::vector<TokenRun> runs;
  append_chunks(split, runs);
  for (const TokenRun& run : runs) pairs[static_cast<std::size_t>(run.rank)] += pairs_of_queries(run.first, run.end, 1);
  return pairs;
}

std::vector<std::int64_t> causal_pairs_of_blocks(const TokenSplit& split, int first_query, int num_queries,
                                                 int num_keys) {
  const auto is_query = [&](int rank) { return rank >= first_query && rank < first_query + num_queries; };
  std::vector<std::int64_t> pairs(static_cast<std::size_t>(split.cp / num_keys), 0);
  const auto of_keys = [&](int rank) { return static_cast<std::size_t>(rank / num_keys); };
  if (split.balancer == LoadBalancer::striped) {
    for (int query = first_query; query < first_query + num_queries; ++query) {
      const std::int64_t n = (split.seq_len - query + split.cp - 1) / split.cp;
      for (int key = 0; key < split.cp; ++key) pairs[of_keys(key)] += n * (n - 1) / 2 + (key <= query ? n : 0);
    }
    return pairs;
  }
  std::vector<TokenRun> runs;
  append_runs_of_one_document(split, runs);
  std::vector<std::int64_t> before(pairs.size(), 0);  // keys of each block
  for (const TokenRun& run : runs) {
    const std::int64_t n = run.end - run.first;
    for (std::size_t block = 0; block < pairs.size() && is_query(run.rank); ++block) pairs[block] += n * before[block];
    if (is_query(run.rank)) pairs[of_keys(run.rank)] += n * (n + 1) / 2;
    before[of_keys(run.rank)] += n;
  }
  return pairs;
}

std::vector<std::int32_t> positions_of_rank(const TokenSplit& split, int rank) {
  require(!reads_documents(split.balancer), "the token lists of '{}' depend on documents", name_of(split.balancer));
  std::vector<std::int32_t> positions;
  if (split.balancer == LoadBalancer::striped) {
    for (std::int64_t p = rank; p < split.seq_len; p += split.cp) positions.push_back(static_cast<std::int32_t>(p));
    return positions;
  }
  std::vector<TokenRun> runs;
  append_chunks(split, runs);
  for (const TokenRun& run : runs)
    for (std::int32_t p = run.first; p < run.end && run.rank == rank; ++p) positions.push_back(p);
  return positions;
}

void require_lists(const TokenSplit& split) {
  require(split.cp >= 1 && split.cp <= split.seq_len,
          "parallelism.context_parallel_degree = {} exceeds the {} tokens of a sequence (use at most {})", split.cp,
          split.seq_len, split.seq_len);
  require(split.seq_len <= std::numeric_limits<std::int32_t>::max(),
          "training.seq_len = {} exceeds 2^31 - 1, the largest supported with context parallelism", split.seq_len);
}

void TokenLists::assign(const TokenSplit& split, std::span<const std::int32_t> documents) {
  require_lists(split);
  if (reads_documents(split.balancer)) require_documents_of(split.seq_len, documents);
  rows_ = rows_per_rank(split);
  runs_.clear();
  append_runs(split, documents);
  if (split.balancer == LoadBalancer::striped) return write_stripes(split);
  write_positions(split.cp);
}

void TokenLists::append_runs(const TokenSplit& split, std::span<const std::int32_t> documents) {
  switch (split.balancer) {
    case LoadBalancer::headtail:
    case LoadBalancer::none: return append_chunks(split, runs_);
    case LoadBalancer::striped: return;  // whose runs are single tokens
    case LoadBalancer::per_document:
    case LoadBalancer::packed: return of_documents_.append_runs(split, documents, runs_);
  }
}

void TokenLists::write_stripes(const TokenSplit& split) {
  positions_.clear();
  offsets_.assign(1, 0);
  for (int rank = 0; rank < split.cp; ++rank) {
    for (std::int64_t p = rank; p < split.seq_len; p += split.cp) positions_.push_back(static_cast<std::int32_t>(p));
    offsets_.push_back(std::ssize(positions_));
  }
}

/// Runs ascend, so each rank's positions do.
void TokenLists::write_positions(int cp) {
  offsets_.assign(static_cast<std::size_t>(cp) + 1, 0);
  for (const TokenRun& run : runs_) offsets_[static_cast<std::size_t>(run.rank) + 1] += run.end - run.first;
  std::partial_sum(offsets_.begin(), offsets_.end(), offsets_.begin());
  positions_.resize(static_cast<std::size_t>(offsets_.back()));
  next_.assign(offsets_.begin(), offsets_.end());
  for (const TokenRun& run : runs_) {
    std::int32_t* positions = positions_.data() + next_[static_cast<std::size_t>(run.rank)];
    for (std::int32_t p = run.first; p < run.end; ++p) *positions++ = p;
    next_[static_cast<std::size_t>(run.rank)] += run.end - run.first;
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
