#include "data/tokenizer/piece_cache.h"

#include <algorithm>
#include <cstring>

namespace echelon {
namespace {

constexpr std::size_t most_slots = std::size_t{1} << 18;

// 32 bytes that end `length` bytes after the first half keep so many bytes of a key.
constexpr auto masks = [] {
  std::array<std::uint8_t, 2 * sizeof(PieceKey)> bytes{};
  std::fill_n(bytes.begin(), sizeof(PieceKey), std::uint8_t{0xff});
  return bytes;
}();

}  // namespace

PieceKey::PieceKey(std::string_view piece, std::string_view readable) {
  const auto place = reinterpret_cast<std::uintptr_t>(piece.data());
  const auto first = reinterpret_cast<std::uintptr_t>(readable.data());
  if (place >= first && place + sizeof(*this) <= first + readable.size()) {
    std::array<std::uint64_t, 4> mask;
    std::memcpy(mask.data(), masks.data() + sizeof(*this) - piece.size(), sizeof(mask));
    std::memcpy(eights.data(), piece.data(), sizeof(*this));
    for (std::size_t i = 0; i < mask.size(); ++i) eights[i] &= mask[i];
  } else {
    std::memcpy(eights.data(), piece.data(), piece.size());
  }
  eights[3] |= std::uint64_t{piece.size()} << 56;
}

void PieceCache::remember(const Slot& slot, std::uint64_t hash) {
  if (slots_.size() < most_slots && 2 * num_known_ >= slots_.size()) grow();
  put(slot, hash);
}

// The first slot that is free, or the one that the hash says.
void PieceCache::put(const Slot& slot, std::uint64_t hash) {
  const auto is_free = [](const Slot& known) { return known.key.length() == 0; };
  std::size_t place = hash & (slots_.size() - 1);
  if (!is_free(slots_[place]) && (is_free(slots_[place ^ 1]) || (hash >> 63) != 0)) place ^= 1;
  num_known_ += is_free(slots_[place]) ? 1 : 0;
  slots_[place] = slot;
}

void PieceCache::grow() {
  std::vector<Slot> old(4 * slots_.size());
  std::swap(old, slots_);
  num_known_ = 0;
  for (const Slot& slot : old) {
    if (slot.key.length() > 0) put(slot, slot.key.hash());
  }
}

}  // namespace echelon
