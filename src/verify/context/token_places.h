// Which tokens of a step's global batch each rank computes with, and which keys they see. Derived from the config and
// the documents alone, so that what a rank was given can be compared with it.
#pragma once

#include "blueprint/batch_layout.h"
#include "context/documents.h"
#include "context/token_lists.h"
#include "data/batch_source.h"

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

  /// What RoPE and learned positions take as the position of a token.
  [[nodiscard]] std::int64_t position_id(std::int64_t token) const {
    return ids_.empty() ? token % seq_len_ : ids_[static_cast<std::size_t>(token)];
  }

  /// The rows of the keys of `cp_rank` that a token sees in a layer with this window (ModelSpec::window_of).
  [[nodiscard]] RowRange keys_seen_by(std::int64_t token, int cp_rank, std::int64_t window) const {
    return keys_seen_by(token, cp_rank, {documents(token / seq_len_), window});
  }
  /// The same where the documents of its sequence were others.
  [[nodiscard]] RowRange keys_seen_by(std::int64_t token, int cp_rank, const Visibility& visibility) const;

 private:
  void split_sequences(const BatchSource& batches);

  const RunConfig& config_;
  BatchLayout layout_;
  MeshShape mesh_;
  std::int64_t step_, seq_len_, rows_;
  int cp_;
  std::vector<TokenLists> lists_;  // of each sequence, or one of all
  std::vector<DocumentOffsets> documents_;
  std::vector<int> parts_;         // of each token of the batch
  std::vector<std::int32_t> ids_;  // of each token with data.reset_position_ids
};

}  // namespace echelon
