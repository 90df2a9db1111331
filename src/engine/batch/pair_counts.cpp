#include "engine/batch/pair_counts.h"

#include <algorithm>
#include <numeric>

namespace echelon {

PairCounts::PairCounts(const ModelPart& model, std::int64_t seq_len)
    : seq_len_(seq_len), pairs_(model.options.windows.size()) {
  all_.by_window.resize(pairs_.size());
  recomputed_.by_window.resize(pairs_.size());
  LayerOptions options = model.options;
  for (const StagePart& stage : model.stages)
    for (std::int64_t i = 0; i < stage.layers.num_layers; ++i) {
      options.window = options.model.window_of(stage.layers.first_layer + i);
      count(options, all_);
      if (options.recompute.of_block(i).contain(BlockOperation::core_attn)) count(options, recomputed_);
    }
  for (std::size_t window = 0; window < pairs_.size(); ++window) planned_.push_back(planned_pairs_of(options, window));
}

void PairCounts::count(const LayerOptions& options, Blocks& blocks) {
  const auto window = options.window_index();
  ++(window ? blocks.by_window[*window] : blocks.without_ranges);
}

std::int64_t PairCounts::planned_pairs_of(const LayerOptions& options, std::size_t window) const {
  if (!options.tokens) return num_document_pairs(seq_len_, options.windows[window]);
  const auto num_blocks = static_cast<std::ptrdiff_t>(options.tokens->blocks.num_blocks());
  const auto first = options.tokens->pairs.begin() + static_cast<std::ptrdiff_t>(window) * num_blocks;
  return std::accumulate(first, first + num_blocks, std::int64_t{0});
}

void PairCounts::clear() {
  std::ranges::fill(pairs_, 0);
  num_sequences_ = 0;
}

// Without ranges this rank has all tokens of a sequence.
std::int64_t PairCounts::num_pairs(const Blocks& blocks) const {
  return std::inner_product(blocks.by_window.begin(), blocks.by_window.end(), pairs_.begin(),
                            num_sequences_ * blocks.without_ranges * num_document_pairs(seq_len_, 0));
}

std::int64_t PairCounts::num_planned_pairs(const Blocks& blocks) const {
  return num_sequences_ * std::inner_product(blocks.by_window.begin(), blocks.by_window.end(), planned_.begin(),
                                             blocks.without_ranges * num_document_pairs(seq_len_, 0));
}

}  // namespace echelon
