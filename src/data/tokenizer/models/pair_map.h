// Values by pairs of integers: an open hash table that is filled once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace echelon {

/// Thread-safe once it is filled.
template <class Value>
class PairMap {
 public:
  /// For at most `size` different pairs.
  explicit PairMap(std::size_t size = 0)
      : entries_(std::bit_ceil(2 * size + 2)), mask_(entries_.size() - 1), is_known_(entries_.size() / 8 + 1) {}

  /// Replaces the value of a known pair.
  void set(std::uint32_t left, std::uint32_t right, const Value& value) {
    const std::uint64_t pair = pair_of(left, right);
    std::size_t slot = slot_of(pair);
    while (entries_[slot].pair != none && entries_[slot].pair != pair) slot = (slot + 1) & mask_;
    entries_[slot] = {pair, value};
    is_known_[bit_of(pair) / 64] |= std::uint64_t{1} << bit_of(pair) % 64;
  }

  /// Null if the pair is not in the table.
  [[nodiscard]] const Value* find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t pair = pair_of(left, right), bit = bit_of(pair);
    if ((is_known_[bit / 64] >> bit % 64 & 1) == 0) return nullptr;
    for (std::size_t slot = slot_of(pair);; slot = (slot + 1) & mask_) {
      if (entries_[slot].pair == pair) return &entries_[slot].value;
      if (entries_[slot].pair == none) return nullptr;
    }
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};  // no pair of ids or of code points
  struct Entry {
    std::uint64_t pair = none;
    Value value = {};
  };
  static std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32 | right; }
  static std::uint64_t hash_of(std::uint64_t pair) { return (pair ^ pair >> 31) * 0x9e3779b97f4a7c15u; }
  [[nodiscard]] std::size_t slot_of(std::uint64_t pair) const { return hash_of(pair) >> 24 & mask_; }
  [[nodiscard]] std::uint64_t bit_of(std::uint64_t pair) const { return hash_of(pair) >> 21 & (8 * mask_ + 7); }

  std::vector<Entry> entries_;
  std::size_t mask_;
  std::vector<std::uint64_t> is_known_;  // a bit per hash: most pairs that are asked for are not in the table
};

}  // namespace echelon
