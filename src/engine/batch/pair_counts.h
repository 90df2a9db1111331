// Pairs (query, key) that attention of a rank computes, of one head and all of its blocks: those of a batch, whose
// documents leave some out, and those that are planned, which the causal mask and windows alone leave.
#pragma once

#include "context/documents.h"
#include "executor/model_part.h"

#include <cstdint>
#include <vector>

namespace echelon {

class PairCounts {
 public:
  explicit PairCounts(const ModelPart& model, std::int64_t seq_len);

  void clear();
  /// Those of a sequence that a block of LayerOptions::windows[window] has.
  void add(std::size_t window, std::int64_t pairs) { pairs_[window] += pairs; }
  /// Those of another sequence that blocks without ranges have.
  void add_sequence() { ++num_sequences_; }

  [[nodiscard]] std::int64_t num_pairs() const;
  [[nodiscard]] std::int64_t num_planned_pairs() const;

 private:
  [[nodiscard]] std::int64_t planned_pairs_of(const LayerOptions& options, std::size_t window) const;

  std::int64_t seq_len_, num_sequences_ = 0;
  std::int64_t blocks_without_ranges_ = 0;
  // By window: blocks of this rank, planned pairs of a block and a sequence, and pairs of all sequences.
  std::vector<std::int64_t> blocks_, planned_, pairs_;
};

}  // namespace echelon
