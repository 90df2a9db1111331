// Which tokens of a step's global batch each rank computes with, and which keys they see. Derived from the config and
// the documents alone, so that what a rank was given can be compared with it.
#pragma once

#include "blueprint/batch_layout.h"
#include "context/documents.h"
#include "context/key_blocks.h"
#include "context/token_lists.h"
#include "data/batch_source.h"

#include <functional>
#include <span>
#include <vector>

namespace echelon {

inline constexpr std::int64_t no_token = -1;  // a row of padding

/// A block of rows of a cp rank: of the sequences of one microbatch on one replica.
struct BlockPlace {
  int replica = 0, microbatch = 0, cp_rank = 0;
};

/// Rows of keys from `begin` on and before `end`; (0, 0) if empty.
struct RowRange {
  std::int64_t begin = 0, end = 0;
  bool operator==(const RowRange&) const = default;
};

class TokenPlaces {
 public:
  /// `config` outlives it. Steps count from 1.
  TokenPlaces(const RunConfig& config, const BatchSource& batches, std::int64_t step);

  [[nodiscard]] const RunConfig& config() const { return config_; }
  [[nodiscard]] std::int64_t step() const { return step_; }
  [[nodiscard]] int cp() const { return cp_; }
  [[nodiscard]] std::int64_t rows_per_sequence() const { return rows_; }
  [[nodiscard]] BlockPlace place_of(int rank, int microbatch) const;

  /// For each row [B, T_r] its token, sequence * T + position; no_token: padding.
  [[nodiscard]] std::vector<std::int64_t> tokens_of(const BlockPlace& block) const;
  /// The cp rank that holds a token.
  [[nodiscard]] int part_of(std::int64_t token) const { return parts_[static_cast<std::size_t>(token)]; }
  /// The positions of a sequence that a cp rank holds, ascending.
  [[nodiscard]] std::span<const std::int32_t> positions(std::int64_t sequence, int cp_rank) const;
  [[nodiscard]] const DocumentOffsets& documents(std::int64_t sequence) const {
    return documents_[static_cast<std::size_t>(sequence)];
  }

  // With which queries a cp rank attends to which blocks of keys (context/key_blocks.h). One rank has one block.
  [[nodiscard]] int num_blocks() const { return blocks_.front().num_blocks(); }
  /// How many cp ranks' keys a block has: block i those of the ranks from i times this on.
  [[nodiscard]] int ranks_of_block() const { return blocks_.front().ranks_of_block(); }
  /// Cp ranks in a row that exchange heads; 1: none do.
  [[nodiscard]] int head_ranks() const { return exchange_.head_ranks; }
  [[nodiscard]] int own_block(int cp_rank) const { return cp_rank / ranks_of_block(); }
  /// That to which a rank attends at a hop of a ring.
  [[nodiscard]] int block_at(int cp_rank, int hop) const {
    return (own_block(cp_rank) - hop + num_blocks()) % num_blocks();
  }
  /// Positions, ascending, without padding.
  [[nodiscard]] std::span<const std::int32_t> queries(std::int64_t sequence, int cp_rank) const;
  [[nodiscard]] std::span<const std::int32_t> keys(std::int64_t sequence, int block) const;
  /// Like tokens_of: of the queries of block.cp_rank, and of the keys of block `key_block`.
  [[nodiscard]] std::vector<std::int64_t> queries_of(const BlockPlace& block) const;
  [[nodiscard]] std::vector<std::int64_t> keys_of(const BlockPlace& block, int key_block) const;
  /// The row of a token in its sequence on the rank that holds it.
  [[nodiscard]] std::int64_t row_of(std::int64_t token) const;

  /// What RoPE and learned positions take as the position of a token.
  [[nodiscard]] std::int64_t position_id(std::int64_t token) const {
    return ids_.empty() ? token % seq_len_ : ids_[static_cast<std::size_t>(token)];
  }

  /// The rows of a block that a token sees in a layer with this window (ModelSpec::window_of).
  [[nodiscard]] RowRange rows_seen_by(std::int64_t token, int block, std::int64_t window) const {
    return rows_seen_by(token, block, {documents(token / seq_len_), window});
  }
  /// The same where the documents of its sequence were others.
  [[nodiscard]] RowRange rows_seen_by(std::int64_t token, int block, const Visibility& visibility) const {
    return seen(token, keys(token / seq_len_, block), visibility);
  }
  /// Of the keys of `cp_rank` alone.
  [[nodiscard]] RowRange keys_seen_by(std::int64_t token, int cp_rank, std::int64_t window) const {
    return seen(token, positions(token / seq_len_, cp_rank), {documents(token / seq_len_), window});
  }

 private:
  void split_sequences(const BatchSource& batches);
  void add_lists(const TokenSplit& split, const DocumentOffsets& documents);
  [[nodiscard]] RowRange seen(std::int64_t token, std::span<const std::int32_t> keys,
                              const Visibility& visibility) const;
  [[nodiscard]] std::size_t list_of(std::int64_t sequence) const {
    return lists_.size() == 1 ? 0 : static_cast<std::size_t>(sequence);
  }
  using PositionsOf = std::function<std::span<const std::int32_t>(std::int64_t sequence)>;
  /// [B, rows] of the sequences of a microbatch.
  [[nodiscard]] std::vector<std::int64_t> tokens_at(const BlockPlace& block, std::int64_t rows,
                                                    const PositionsOf& positions_of) const;

  const RunConfig& config_;
  BatchLayout layout_;
  MeshShape mesh_;
  std::int64_t step_, seq_len_, rows_;
  int cp_;
  KeyExchange exchange_;
  std::vector<TokenLists> lists_;  // of each sequence, or one of all
  std::vector<KeyBlocks> blocks_;  // of each of these, of each group of ranks with the same queries
  std::vector<DocumentOffsets> documents_;
  std::vector<int> parts_;         // of each token of the batch
  std::vector<std::int32_t> ids_;  // of each token with data.reset_position_ids
};

}  // namespace echelon
