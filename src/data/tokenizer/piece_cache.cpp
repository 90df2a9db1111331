#include "data/tokenizer/piece_cache.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::size_t most_slots = std::size_t{1} << 18;

}  // namespace

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
  HugeVector<Slot> old(4 * slots_.size());
  std::swap(old, slots_);
  num_known_ = 0;
  for (const Slot& slot : old) {
    if (slot.key.length() > 0) put(slot, slot.key.hash());
  }
}

}  // namespace echelon
