// The merges of BPE by their pair of tokens.
#pragma once

#include "data/tokenizer/models/pair_map.h"
#include "data/tokenizer/tokenizer_spec.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace echelon {

/// What two tokens merge to.
struct PairMerge {
  std::int32_t rank = std::numeric_limits<std::int32_t>::max();  // this: they do not
  std::int32_t result = 0;
  [[nodiscard]] bool exists() const { return rank != std::numeric_limits<std::int32_t>::max(); }
};

/// Thread-safe.
class MergeTable {
 public:
  /// Of duplicate pairs, the last one counts. `first`: where the ids of bytes or of ASCII start.
  MergeTable(const std::vector<Merge>& merges, std::int32_t first)
      : first_(static_cast<std::uint32_t>(first)), first_pairs_(num_first * num_first), others_(merges.size()) {
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const auto left = static_cast<std::uint32_t>(merges[rank].left);
      const auto right = static_cast<std::uint32_t>(merges[rank].right);
      const PairMerge merge{static_cast<std::int32_t>(rank), merges[rank].result};
      if (are_first(left, right))
        first_pairs_[place_of(left, right)] = merge;
      else
        others_.set(left, right, merge);
    }
  }

  [[nodiscard]] PairMerge find(std::int32_t left, std::int32_t right) const {
    const auto l = static_cast<std::uint32_t>(left), r = static_cast<std::uint32_t>(right);
    if (are_first(l, r)) return first_pairs_[place_of(l, r)];
    const PairMerge* found = others_.find(l, r);
    return found != nullptr ? *found : PairMerge();
  }

 private:
  // The pairs that are looked up most: their merges stay in a core's cache.
  static constexpr std::uint32_t num_first = 256;

  [[nodiscard]] bool are_first(std::uint32_t left, std::uint32_t right) const {
    return ((left - first_) | (right - first_)) < num_first;
  }
  [[nodiscard]] std::size_t place_of(std::uint32_t left, std::uint32_t right) const {
    return std::size_t{left - first_} * num_first + (right - first_);
  }

  std::uint32_t first_;
  std::vector<PairMerge> first_pairs_;
  PairMap<PairMerge> others_;
};

}  // namespace echelon
