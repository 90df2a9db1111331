// Source of token sequences: sequence `step * global_batch_size + index` is the same on every rank.
#pragma once

#include "base/error.h"

#include <cstdint>

namespace echelon {

/// Reads are const and safe from many threads at once.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// Writes int32 tokens[seq_len] and targets[seq_len] of global sequence `sequence` (= step * global_batch_size +
  /// index in the batch). A target is the next token, or ignored_target (tensor/tokens.h) where nothing is predicted.
  virtual void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const = 0;

  /// Writes int32 starts[seq_len]: for each token the position in the sequence at which its document starts, 0 if it
  /// started earlier. A source that wraps another must forward this.
  virtual void read_document_starts(std::int64_t /*sequence*/, std::int64_t /*seq_len*/,
                                    std::int32_t* /*starts*/) const {
    throw Failure("this source of batches knows no documents");
  }

  /// How many of them are tokens; the others, the last ones, are padding of packed data. A source that wraps another
  /// must forward this.
  [[nodiscard]] virtual std::int64_t num_tokens(std::int64_t /*sequence*/, std::int64_t seq_len) const {
    return seq_len;
  }

  /// Writes int32 positions[seq_len]: of each token in its document, or in the sequence if its document started
  /// earlier. What data.reset_position_ids gives RoPE and learned positions.
  void read_positions(std::int64_t sequence, std::int64_t seq_len, std::int32_t* positions) const {
    read_document_starts(sequence, seq_len, positions);
    for (std::int64_t i = 0; i < seq_len; ++i) positions[i] = static_cast<std::int32_t>(i) - positions[i];
  }
};

}  // namespace echelon
