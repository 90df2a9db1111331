#include "comm/mpi/reduction.h"

#include "comm/sum.h"

#include <algorithm>
#include <cstring>

namespace echelon {
namespace {

constexpr std::int64_t most_slots = 4;

}  // namespace

// Numbers are summed while they lie in the cache, and all slots together stay small for large groups.
std::int64_t Reduction::chunk_bytes(int num_ranks) {
  constexpr std::int64_t all_peers_bytes = 1 << 20, most = 256 << 10, least = 16 << 10;
  const std::int64_t bytes = std::clamp(all_peers_bytes / num_ranks, least, most);
  return bytes / 64 * 64;
}

Reduction::Reduction(const Signature& signature, const std::vector<int>& ranks, int place, const std::byte* in, std::byte* out, std::int64_t num_bytes)
    : signature_(signature),
      ranks_(ranks),
      place_(static_cast<std::size_t>(place)),
      in_(in),
      out_(out),
      num_bytes_(num_bytes),
      chunk_bytes_(std::min(chunk_bytes(static_cast<int>(ranks.size())), std::max<std::int64_t>(1, num_bytes))),
      is_pushed_(is_pushed(signature.kind, num_bytes)) {
  const std::int64_t num_slots = std::min(most_slots, (num_bytes + chunk_bytes_ - 1) / chunk_bytes_);
  const auto slot_bytes = static_cast<std::size_t>(chunk_bytes_) * (ranks.size() - 1);
  memory_ = std::make_unique_for_overwrite<std::byte[]>(slot_bytes * static_cast<std::size_t>(num_slots));
  for (std::size_t i = 0; i < static_cast<std::size_t>(num_slots); ++i) {
    slots_.push_back({.num_left = std::vector<int>(ranks.size(), 1), .data = memory_.get() + i * slot_bytes});
    slots_.back().num_left[place_] = 0;
  }
}

std::byte* Reduction::data_of(const Slot& slot, std::size_t place) const {
  return slot.data + (place < place_ ? place : place - 1) * static_cast<std::size_t>(chunk_bytes_);
}

void Reduction::take_push(int peer, const std::byte* payload) {
  const auto place = static_cast<std::size_t>(std::find(ranks_.begin(), ranks_.end(), peer) - ranks_.begin());
  std::memcpy(data_of(slots_.front(), place), payload, static_cast<std::size_t>(num_bytes_));
  slots_.front().num_left[place] = 0;
}

void Reduction::advance(const Correspondence& correspondence) {
  if (!is_pushed_) invite(correspondence);
  while (!is_done()) {
    const Slot& slot = slot_of(num_summed_);
    if (std::any_of(slot.num_left.begin(), slot.num_left.end(), [](int left) { return left > 0; })) return;
    sum(slot);
    if (!is_pushed_) invite(correspondence);
  }
}

// A slot is open for its next chunk when its last one was summed.
void Reduction::invite(const Correspondence& correspondence) {
  const std::int64_t most = num_summed_ + chunk_bytes_ * static_cast<std::int64_t>(slots_.size());
  while (num_invited_ < std::min(most, num_bytes_)) {
    Slot& slot = slot_of(num_invited_);
    const std::int64_t length = std::min(chunk_bytes_, num_bytes_ - num_invited_);
    for (std::size_t place = 0; place < ranks_.size(); ++place) {
      if (place == place_) continue;
      slot.num_left[place] = 1;
      const int number = correspondence.wire.open_place(ranks_[place], data_of(slot, place), length, &slot.num_left[place]);
      correspondence.invite(ranks_[place], 0, num_invited_, length, number);
    }
    num_invited_ += length;
  }
}

void Reduction::sum(const Slot& slot) {
  const std::int64_t length = std::min(chunk_bytes_, num_bytes_ - num_summed_);
  std::vector<const std::byte*> in;
  for (std::size_t place = 0; place < ranks_.size(); ++place) in.push_back(place == place_ ? in_ + num_summed_ : data_of(slot, place));
  std::byte* const out = out_ + num_summed_;
  reduce_in_rank_order({signature_.dtype, signature_.op}, in, {&out, 1}, {0, 0, length});
  num_summed_ += length;
}

std::vector<int> Reduction::missing() const {
  std::vector<int> missing;
  if (is_done()) return missing;
  const Slot& slot = slot_of(num_summed_);
  for (std::size_t place = 0; place < ranks_.size(); ++place)
    if (slot.num_left[place] > 0) missing.push_back(ranks_[place]);
  return missing;
}

}  // namespace echelon
