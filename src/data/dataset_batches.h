// Training sequences from a dataset: its stream of tokens is split into windows. The order depends only on (seed,
// sequence).
//
//   window w of seq_len T:  tokens [w T, w T + T), targets [w T + 1, w T + T + 1)
//   windows per epoch W = ceil((tokens - 1) / T)
//   sequence s:             epoch s / W, window permutation(seed, epoch)(s mod W)
#pragma once

#include "data/batch_source.h"
#include "data/indexed_dataset.h"

namespace echelon {

/// `shuffled` for training: each epoch has its own order. `in_order` for validation: every epoch starts at the first
/// window.
enum class WindowOrder : std::uint8_t { shuffled, in_order };

struct BatchOrder {
  std::int64_t seed = 0;
  WindowOrder order = WindowOrder::shuffled;
  std::int64_t vocab_size = 0;  // reading an id at or above it throws Error; 0: not checked
};

/// Every next token of the stream is predicted exactly once per epoch. A short last window is padded with token 0 and
/// ignored_target.
class DatasetBatches final : public BatchSource {
 public:
  /// Throws Error if the dataset has fewer than two tokens: there is nothing to predict.
  DatasetBatches(IndexedDataset dataset, BatchOrder order);

  /// Throws Error on a token that is not below vocab_size.
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override;

  /// Documents come from PREFIX.idx.
  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override;

  [[nodiscard]] std::int64_t windows_per_epoch(std::int64_t seq_len) const;
  [[nodiscard]] const IndexedDataset& dataset() const { return dataset_; }

 private:
  /// The stream's first token of a sequence.
  [[nodiscard]] std::int64_t first_token_of(std::int64_t sequence, std::int64_t seq_len) const;

  IndexedDataset dataset_;
  BatchOrder order_;
};

}  // namespace echelon
