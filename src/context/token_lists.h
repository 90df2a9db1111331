// Which tokens of a sequence each rank of a cp group holds: a pure function of its arguments, so that every rank
// computes the same lists without a message. Legend: T = tokens of the sequence, T_r = rows that each rank holds.
//
//   T_r = ceil(T / cp), rounded up to `multiple`; what is not a token is padding, in the last rows
#pragma once

#include "context/document_lists.h"
#include "context/token_run.h"
#include "context/token_split.h"

#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

/// Throws Error if cp exceeds seq_len, and on a sequence of 2^31 tokens.
void require_lists(const TokenSplit& split);

/// T_r. Needs no documents: a plan knows it.
[[nodiscard]] std::int64_t rows_per_rank(const TokenSplit& split);

/// Tokens of a sequence that `num_ranks` ranks in a row hold together; where documents decide, at least.
[[nodiscard]] std::int64_t least_tokens(const TokenSplit& split, int first_rank, int num_ranks);

/// Pairs (query, key) of each rank's queries under the causal mask alone: of one head and one sequence, by rank. Makes
/// no list of positions. Throws Error for a balancer that reads documents.
[[nodiscard]] std::vector<std::int64_t> causal_pairs(const TokenSplit& split);

/// Likewise those of the queries of `num_queries` ranks in a row, from `first_query` on, with the keys of each block of
/// `num_keys` ranks in a row. For a balancer that reads documents, of a sequence that is one.
[[nodiscard]] std::vector<std::int64_t> causal_pairs_of_blocks(const TokenSplit& split, int first_query,
                                                               int num_queries, int num_keys);

/// The positions of one rank, ascending, as TokenLists has them. Throws Error for a balancer that reads documents.
[[nodiscard]] std::vector<std::int32_t> positions_of_rank(const TokenSplit& split, int rank);

/// The positions of every rank, ascending. Each position of [0, T) is on exactly one rank, and the numbers of tokens of
/// two ranks differ by one at most.
class TokenLists {
 public:
  /// Overwrites the lists; reuses their memory. Linear time. `documents` (DocumentOffsets) are read where
  /// reads_documents(split.balancer). Throws Error if cp exceeds seq_len, on a sequence of 2^31 tokens, and on
  /// documents that are not of this sequence.
  void assign(const TokenSplit& split, std::span<const std::int32_t> documents = {});

  [[nodiscard]] int cp() const { return static_cast<int>(offsets_.size()) - 1; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }  // T_r
  [[nodiscard]] std::span<const std::int32_t> positions(int rank) const {
    return std::span(positions_).subspan(offset(rank), offset(rank + 1) - offset(rank));
  }
  [[nodiscard]] std::int64_t num_padding(int rank) const { return rows_ - std::ssize(positions(rank)); }

  /// For each position of the sequence its row where the T_r rows of rank 0, 1, ... follow each other: the index that
  /// puts gathered rows into ascending order. Writes int32 [T].
  void write_gathered_rows(std::span<std::int32_t> rows) const;

 private:
  [[nodiscard]] std::size_t offset(int rank) const {
    return static_cast<std::size_t>(offsets_[static_cast<std::size_t>(rank)]);
  }

  void append_runs(const TokenSplit& split, std::span<const std::int32_t> documents);
  void write_stripes(const TokenSplit& split);
  void write_positions(int cp);

  std::int64_t rows_ = 0;
  std::vector<std::int32_t> positions_;  // of rank 0, 1, ...
  std::vector<std::int64_t> offsets_;    // where each rank's positions start; the end
  std::vector<std::int64_t> next_;       // where the next positions of each rank go, while assign() runs
  std::vector<TokenRun> runs_;           // of the sequence, while assign() runs
  DocumentLists of_documents_;
};

}  // namespace echelon
