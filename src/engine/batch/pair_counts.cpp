#include "engine/batch/pair_counts.h"

#include <algorithm>
#include <numeric>

namespace echelon {

PairCounts::PairCounts(const ModelPart& model, std::int64_t seq_len)
    : seq_len_(seq_len), blocks_(model.options.windows.size()), pairs_(blocks_.size()) {
  LayerOptions options = model.options;
  for (const StagePart& stage : model.stages)
    for (std::int64_t i = 0; i < stage.layers.num_layers; ++i) {
      options.window = options.model.window_of(stage.layers.first_layer + i);
      const auto window = options.window_index();
      ++(window ? blocks_[*window] : blocks_without_ranges_);
    }
  for (std::size_t window = 0; window < blocks_.size(); ++window) planned_.push_back(planned_pairs_of(options, window));
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
std::int64_t PairCounts::num_pairs() const {
  return std::inner_product(blocks_.begin(), blocks_.end(), pairs_.begin(),
                            num_sequences_ * blocks_without_ranges_ * num_document_pairs(seq_len_, 0));
}

std::int64_t PairCounts::num_planned_pairs() const {
  return num_sequences_ * std::inner_product(blocks_.begin(), blocks_.end(), planned_.begin(),
                                             blocks_without_ranges_ * num_document_pairs(seq_len_, 0));
}

}  // namespace echelon
