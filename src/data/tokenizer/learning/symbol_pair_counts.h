// Counts of pairs of symbols: an open hash table that grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace echelon {

using SymbolPair = std::pair<std::int32_t, std::int32_t>;

class SymbolPairCounts {
 public:
  struct Use {
    std::int64_t count = 0;
    std::int64_t list = -1;  // of the places where the current merge made the pair
  };

  /// The use of a pair; a new one if it is not known. Valid until the next call.
  Use& operator[](SymbolPair pair) {
    const std::uint64_t key = key_of(pair);
    std::size_t place = place_of(key);
    if (entries_[place].key == key) return entries_[place].use;
    if (2 * ++num_pairs_ > entries_.size()) {
      grow();
      place = place_of(key);
    }
    entries_[place].key = key;
    return entries_[place].use;
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};  // no pair of ids
  struct Entry {
    std::uint64_t key = none;
    Use use;
  };

  static std::uint64_t key_of(SymbolPair pair) {
    return static_cast<std::uint64_t>(pair.first) << 32 | static_cast<std::uint32_t>(pair.second);
  }
  // Where the pair is, or a free place for it.
  [[nodiscard]] std::size_t place_of(std::uint64_t key) const {
    const std::uint64_t hash = (key ^ key >> 31) * 0x9e3779b97f4a7c15u;
    std::size_t place = (hash ^ hash >> 32) & (entries_.size() - 1);
    while (entries_[place].key != key && entries_[place].key != none) place = (place + 1) & (entries_.size() - 1);
    return place;
  }
  void grow() {
    std::vector<Entry> old(4 * entries_.size());
    std::swap(old, entries_);
    for (const Entry& entry : old) {
      if (entry.key != none) entries_[place_of(entry.key)] = entry;
    }
  }

  std::vector<Entry> entries_ = std::vector<Entry>(1024);
  std::size_t num_pairs_ = 0;
};

}  // namespace echelon
