// Training sequences from a dataset: its stream of tokens is split into windows. The order depends only on (seed,
// sequence).
//
//   window w of seq_len T:  tokens [w T, w T + T), targets [w T + 1, w T + T + 1)
//   windows per epoch W = ceil((tokens - 1) / T)
//   sequence s:             epoch s / W, window permutation(seed, epoch)(s mod W)
//
// Packed data has sequences of pieces of documents instead of windows; they are ordered in the same way.
#pragma once

#include "data/batch_source.h"
#include "data/indexed_dataset.h"
#include "data/loss_mask.h"
#include "data/packing/best_fit.h"

#include <memory>
#include <optional>

namespace echelon {

/// `shuffled` for training: each epoch has its own order. `in_order` for validation: every epoch starts at the first
/// window.
enum class WindowOrder : std::uint8_t { shuffled, in_order };

struct BatchOrder {
  std::int64_t seed = 0;
  WindowOrder order = WindowOrder::shuffled;
  std::int64_t vocab_size = 0;  // reading an id at or above it throws Error; 0: not checked
  bool eod_mask_loss = false;   // the last token of a document has no target
};

/// Without packing, every next token of the stream is predicted exactly once per epoch, and a short last window is
/// padded with token 0 and ignored_target. Packed, the target of a document's last token is the first token of the next
/// document in the sequence, if there is one; where a document is split, it is the document's next token.
/// In both, a target that PREFIX.mask leaves out is ignored.
class DatasetBatches final : public BatchSource {
 public:
  /// Of padding that is one document: attention takes the square of its length.
  static constexpr std::int64_t most_padding_together = 128;

  /// Throws Error if the dataset has fewer than two tokens: there is nothing to predict.
  DatasetBatches(IndexedDataset dataset, BatchOrder order, std::optional<PackedSequences> packed = {});

  /// Throws Error on a token that is not below vocab_size.
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override;

  /// Documents come from PREFIX.idx. Packed: each piece is a document of its own. Padding is divided into short ones.
  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override;

  [[nodiscard]] std::int64_t num_tokens(std::int64_t sequence, std::int64_t seq_len) const override;

  /// Packed: sequences. Throws Error if it is packed for another seq_len.
  [[nodiscard]] std::int64_t windows_per_epoch(std::int64_t seq_len) const;
  /// Whether any target is not ignored: reads sequences until it has found one.
  [[nodiscard]] bool has_targets(std::int64_t seq_len) const;
  /// Targets of an epoch that are not ignored.
  [[nodiscard]] std::int64_t num_targets() const;
  [[nodiscard]] const IndexedDataset& dataset() const { return dataset_; }
  [[nodiscard]] const LossMask* mask() const { return mask_.get(); }
  [[nodiscard]] const PackedSequences* packed() const { return packed_ ? &*packed_ : nullptr; }

 private:
  [[nodiscard]] std::int64_t window_of(std::int64_t sequence, std::int64_t seq_len) const;
  void read_window(std::int64_t first, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const;
  void read_packed(std::int64_t window, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const;
  void read_packed_starts(std::int64_t window, std::int64_t seq_len, std::int32_t* starts) const;
  [[nodiscard]] bool ends_document(const DocumentPiece& piece) const;
  [[nodiscard]] std::int32_t token_after(const DocumentPiece& piece) const;
  void mask_window(std::int64_t first, std::int64_t seq_len, std::int32_t* targets) const;
  void mask_packed(std::int64_t window, std::int32_t* targets) const;
  [[nodiscard]] std::int64_t count_targets() const;
  void mask_ends(std::int64_t first, std::int64_t end, std::int32_t* targets) const;
  void require_in_vocabulary(std::int64_t seq_len, const std::int32_t* tokens, const std::int32_t* targets) const;

  IndexedDataset dataset_;
  BatchOrder order_;
  std::optional<PackedSequences> packed_;
  std::shared_ptr<const LossMask> mask_;  // none: all tokens are trained
};

}  // namespace echelon
