// The merges of BPE by their pair of tokens: an open hash table.
#pragma once

#include "data/tokenizer/tokenizer_spec.h"

#include <bit>
#include <cstdint>
#include <vector>

namespace echelon {

class MergeTable {
 public:
  struct Entry {
    std::uint64_t pair = none;
    std::int32_t rank = 0, result = 0;
  };

  /// Of duplicate pairs, the last one counts.
  explicit MergeTable(const std::vector<Merge>& merges)
      : entries_(std::bit_ceil(2 * merges.size() + 2)), mask_(entries_.size() - 1) {
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const std::uint64_t pair = pair_of(merges[rank].left, merges[rank].right);
      std::size_t slot = slot_of(pair);
      while (entries_[slot].pair != none && entries_[slot].pair != pair) slot = (slot + 1) & mask_;
      entries_[slot] = {pair, static_cast<std::int32_t>(rank), merges[rank].result};
    }
  }

  /// None if the two do not merge.
  [[nodiscard]] const Entry* find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t pair = pair_of(left, right);
    for (std::size_t slot = slot_of(pair);; slot = (slot + 1) & mask_) {
      if (entries_[slot].pair == pair) return &entries_[slot];
      if (entries_[slot].pair == none) return nullptr;
    }
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};  // ids are not negative
  static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  [[nodiscard]] std::size_t slot_of(std::uint64_t pair) const {
    const std::uint64_t mixed = (pair ^ pair >> 31) * 0x9e3779b97f4a7c15u;
    return static_cast<std::size_t>(mixed >> 24) & mask_;
  }

  std::vector<Entry> entries_;
  std::size_t mask_;
};

}  // namespace echelon
