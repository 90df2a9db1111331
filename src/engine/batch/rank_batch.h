// A rank's part of a global batch on the host: its tokens, which keys each of them sees, and where it is.
#pragma once

#include "blueprint/batch_layout.h"
#include "blueprint/traffic/context_traffic.h"
#include "context/documents.h"
#include "data/batch_source.h"
#include "engine/batch/pair_counts.h"
#include "executor/action_executor.h"

#include <memory>
#include <optional>
#include <vector>

namespace echelon {

/// How unevenly pairs (query, key) are distributed: the largest share over the mean. None where it is not known, or
/// always the same.
struct PairShares {
  double of_whole = 1;                // what documents leave of the pairs of whole sequences, in this rank's cp group
  std::optional<double> of_cp_ranks;  // of this rank's cp group
  std::optional<double> of_replicas;
};

class RankBatch {
 public:
  /// Of the model's tokens, as they are in a global batch of `config`. Both outlive the batch.
  RankBatch(const RunConfig& config, const ModelPart& model, int rank);

  /// The global batch that starts with `first_sequence`. Throws Error for data that cannot be read; then nothing is
  /// held.
  void read(const BatchSource& source, std::int64_t first_sequence);
  [[nodiscard]] bool holds(const BatchSource* source, std::int64_t first_sequence) const {
    return source_ != nullptr && source_ == source && first_sequence_ == first_sequence;
  }
  void release() { source_ = nullptr; }

  [[nodiscard]] HostBatch values() const;
  [[nodiscard]] std::int64_t num_targets() const;  // those that are not ignored
  [[nodiscard]] PairShares pair_shares() const;
  [[nodiscard]] const PairCounts& pairs() const { return pairs_; }
  /// That this rank sends, by LayerOptions::windows; none where every batch is sent whole.
  [[nodiscard]] std::vector<KeyRowCounts> key_row_counts() const;

 private:
  struct Lists {
    TokenLists of_ranks;
    KeyBlocks blocks;
    void assign(const RankTokens& of_rank, const DocumentOffsets& documents);
  };

  /// The sequences of this rank, in the order in which it stores them.
  void arrange();
  /// Every rank then reads where the documents of all ranks start.
  [[nodiscard]] bool counts_replicas() const { return model_->options.masks_documents && layout_.num_replicas() > 1; }
  /// Those of a sequence, or one where documents have no effect.
  void find_documents_of(std::int64_t sequence);
  [[nodiscard]] Visibility visibility(std::int64_t window) const;

  /// Sequence `row` of this rank, whole or its part of it.
  void read_whole(std::int64_t sequence, std::size_t row);
  void read_part(std::int64_t sequence, std::size_t row);
  void write_positions(std::span<const std::int32_t> tokens, std::size_t row);
  [[nodiscard]] std::int32_t place_of(std::int64_t position, std::size_t row) const;
  void write_begins(std::size_t row);
  void write_ranges(const TokenLists& of_ranks, const KeyBlocks& blocks, std::size_t row);
  void write_shape(std::size_t row, std::size_t ranges, const MaskShape& shape);
  void write_order(const KeyBlocks& blocks, std::size_t row);
  void write_transfers(const Lists& lists, std::size_t row);
  [[nodiscard]] KeyTransfers& transfers_at(std::size_t row, std::size_t window);
  void add_pairs(const TokenLists& lists);

  void make_room();

  const RunConfig* config_;
  const ModelPart* model_;
  BatchLayout layout_;
  int rank_;
  const BatchSource* source_ = nullptr;
  std::int64_t first_sequence_ = 0;
  std::vector<std::int64_t> sequences_;
  std::vector<std::int32_t> tokens_, targets_, key_begin_, key_end_, rows_by_position_, rows_by_rank_, positions_,
      places_;
  std::vector<MaskShape> mask_shapes_;
  std::vector<std::int32_t> starts_;           // of one sequence
  std::vector<std::int32_t> ends_;             // of its ranges, where they are not read
  DocumentOffsets documents_, whole_;          // of that sequence, and of one without documents
  Lists lists_;                                // of that sequence, where they depend on documents
  std::shared_ptr<const Lists> lists_of_all_;  // where they do not; shared with copies
  std::vector<KeyTransfers> key_transfers_;    // [microbatches, windows, B]
  PairCounts pairs_;
  std::vector<std::int64_t> pairs_of_sequence_, pairs_of_cp_ranks_, pairs_of_replicas_;
};

}  // namespace echelon
