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

  [[nodiscard]] std::int64_t num_pairs() const { return num_pairs(all_); }
  [[nodiscard]] std::int64_t num_planned_pairs() const { return num_planned_pairs(all_); }
  /// Of the blocks that recompute attention, which may have other windows than the rest.
  [[nodiscard]] std::int64_t num_recomputed_pairs() const { return num_pairs(recomputed_); }
  [[nodiscard]] std::int64_t num_planned_recomputed_pairs() const { return num_planned_pairs(recomputed_); }

 private:
  /// Blocks of this rank, by window and without ranges.
  struct Blocks {
    std::vector<std::int64_t> by_window;
    std::int64_t without_ranges = 0;
  };
  static void count(const LayerOptions& options, Blocks& blocks);
  [[nodiscard]] std::int64_t num_pairs(const Blocks& blocks) const;
  [[nodiscard]] std::int64_t num_planned_pairs(const Blocks& blocks) const;
  [[nodiscard]] std::int64_t planned_pairs_of(const LayerOptions& options, std::size_t window) const;

  std::int64_t seq_len_, num_sequences_ = 0;
  Blocks all_, recomputed_;
  // By window: planned pairs of a block and a sequence, and pairs of all sequences.
  std::vector<std::int64_t> planned_, pairs_;
};

}  // namespace echelon
