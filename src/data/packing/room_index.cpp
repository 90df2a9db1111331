#include "data/packing/room_index.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace echelon {

RoomIndex::RoomIndex(std::int64_t most_room) : tops_(static_cast<std::size_t>(most_room) + 1, -1) {
  std::size_t num_bits = tops_.size();
  do {
    num_bits = (num_bits + 63) / 64;
    levels_.emplace_back(num_bits, 0);
  } while (num_bits > 1);
}

void RoomIndex::push(std::int64_t room, std::int32_t sequence) {
  const auto s = static_cast<std::size_t>(sequence);
  auto i = static_cast<std::size_t>(room);
  if (below_.size() <= s) below_.resize(s + 1);
  below_[s] = std::exchange(tops_[i], sequence);
  for (auto& level : levels_) {
    level[i / 64] |= std::uint64_t{1} << i % 64;
    i /= 64;
  }
}

std::int32_t RoomIndex::pop(std::int64_t least, std::int64_t& room) {
  room = first_from(least);
  if (room < 0) return -1;
  auto i = static_cast<std::size_t>(room);
  const std::int32_t sequence = tops_[i];
  tops_[i] = below_[static_cast<std::size_t>(sequence)];
  if (tops_[i] >= 0) return sequence;
  for (auto& level : levels_) {
    level[i / 64] &= ~(std::uint64_t{1} << i % 64);
    if (level[i / 64] != 0) break;
    i /= 64;
  }
  return sequence;
}

std::int64_t RoomIndex::first_from(std::int64_t least) const {
  auto i = static_cast<std::size_t>(least);
  std::size_t level = 0;
  // Up, to the first word that has a bit from i on.
  for (;; ++level) {
    if (level == levels_.size() || i / 64 >= levels_[level].size()) return -1;
    const std::uint64_t word = levels_[level][i / 64] >> i % 64;
    if (word != 0) {
      i += static_cast<std::size_t>(std::countr_zero(word));
      break;
    }
    i = i / 64 + 1;
  }
  // Down, to the first bit of each word.
  while (level > 0) {
    --level;
    i = i * 64 + static_cast<std::size_t>(std::countr_zero(levels_[level][i]));
  }
  return static_cast<std::int64_t>(i);
}

void RoomIndex::clear() {
  std::int64_t room = 0;
  while (pop(0, room) >= 0) {
  }
}

}  // namespace echelon
