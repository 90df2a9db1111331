#include "comm/mpi/reduction.h"

#include "comm/sum.h"

#include <algorithm>
#include <cstring>

namespace echelon {
namespace {

constexpr std::int64_t most_slots = 4;

}  // namespace

// Values are summed while they are in the cache, and all slots together stay small for large groups.
std::int64_t Reduction::chunk_bytes(int num_ranks) {
  constexpr std::int64_t all_peers_bytes = 1 << 20, most = 256 << 10, least = 16 << 10;
  const std::int64_t bytes = std::clamp(all_peers_bytes / num_ranks, least, most);
  return bytes / 64 * 64;
}

Reduction::Reduction(const FlowContext& context, const std::vector<int>& ranks, int place, const std::byte* in,
                     std::byte* out, std::int64_t num_bytes)
    : signature_(context.header.signature),
      ranks_(ranks),
      place_(static_cast<std::size_t>(place)),
      in_(in),
      out_(out),
      num_bytes_(num_bytes),
      chunk_bytes_(std::min(chunk_bytes(static_cast<int>(ranks.size())), std::max<std::int64_t>(1, num_bytes))),
      ways_(ranks.size(), Way::eager),
      offered_(ranks.size()) {
  for (std::size_t other = 0; other < ranks.size(); ++other)
    if (other != place_) ways_[other] = way_of(context.wire, signature_.kind, ranks[other], num_bytes);
  invites_ = std::count(ways_.begin(), ways_.end(), Way::message) > 0;
  reads_ = std::count(ways_.begin(), ways_.end(), Way::memory) > 0;
  const std::int64_t num_slots = invites_ ? std::min(most_slots, (num_bytes + chunk_bytes_ - 1) / chunk_bytes_) : 1;
  const auto slot_bytes = static_cast<std::size_t>(chunk_bytes_) * (ranks.size() - 1);
  memory_ = std::make_unique_for_overwrite<std::byte[]>(slot_bytes * static_cast<std::size_t>(num_slots));
  for (std::size_t i = 0; i < static_cast<std::size_t>(num_slots); ++i) {
    slots_.push_back({.num_left = std::vector<int>(ranks.size(), 1), .data = memory_.get() + i * slot_bytes});
    for (std::size_t other = 0; other < ranks.size(); ++other)
      if (other == place_ || ways_[other] == Way::memory) slots_.back().num_left[other] = 0;
  }
}

std::byte* Reduction::data_of(const Slot& slot, std::size_t place) const {
  return slot.data + (place < place_ ? place : place - 1) * static_cast<std::size_t>(chunk_bytes_);
}

std::size_t Reduction::place_of(int peer) const {
  return static_cast<std::size_t>(std::find(ranks_.begin(), ranks_.end(), peer) - ranks_.begin());
}

void Reduction::take(const Note& note, const std::byte* payload) {
  const std::size_t place = place_of(note.source);
  if (note.kind == NoteKind::offer) return offered_[place].take(note);
  std::memcpy(data_of(slots_.front(), place), payload, static_cast<std::size_t>(num_bytes_));
  slots_.front().num_left[place] = 0;
}

bool Reduction::has(std::size_t place) const {
  if (ways_[place] == Way::memory) return offered_[place].num_bytes >= num_summed_ + next_length();
  return slot_of(num_summed_).num_left[place] == 0;
}

bool Reduction::advance(const FlowContext& context) {
  if (invites_) invite(context);
  while (!is_done()) {
    if (!missing().empty()) return false;
    const Slot& slot = slot_of(num_summed_);
    if (reads_) read(context, slot);
    sum(slot);
    if (reads_) acknowledge(context);
    if (invites_) invite(context);
    if (reads_) return missing().empty() && !is_done();
  }
  return false;
}

void Reduction::read(const FlowContext& context, const Slot& slot) const {
  for (std::size_t place = 0; place < ranks_.size(); ++place)
    if (ways_[place] == Way::memory)
      context.wire.memory().read(ranks_[place], offered_[place].address + static_cast<std::uint64_t>(num_summed_),
                                 data_of(slot, place), next_length());
}

void Reduction::acknowledge(const FlowContext& context) const {
  for (std::size_t place = 0; place < ranks_.size(); ++place)
    if (ways_[place] == Way::memory) context.acknowledge(ranks_[place], 0, num_summed_);
}

// A slot is open for its next chunk when its last one was summed.
void Reduction::invite(const FlowContext& context) {
  const std::int64_t most = num_summed_ + chunk_bytes_ * static_cast<std::int64_t>(slots_.size());
  while (num_invited_ < std::min(most, num_bytes_)) {
    Slot& slot = slot_of(num_invited_);
    const std::int64_t length = std::min(chunk_bytes_, num_bytes_ - num_invited_);
    for (std::size_t place = 0; place < ranks_.size(); ++place) {
      if (ways_[place] != Way::message) continue;
      slot.num_left[place] = 1;
      const int number = context.wire.open_place(ranks_[place], data_of(slot, place), length, &slot.num_left[place]);
      context.grant(ranks_[place], 0, num_invited_, length, number);
    }
    num_invited_ += length;
  }
}

void Reduction::sum(const Slot& slot) {
  const std::int64_t length = std::min(chunk_bytes_, num_bytes_ - num_summed_);
  std::vector<const std::byte*> in;
  for (std::size_t place = 0; place < ranks_.size(); ++place)
    in.push_back(place == place_ ? in_ + num_summed_ : data_of(slot, place));
  std::byte* const out = out_ + num_summed_;
  reduce_in_rank_order({signature_.dtype, signature_.op}, in, {&out, 1}, {0, 0, length});
  num_summed_ += length;
}

std::vector<int> Reduction::missing() const {
  std::vector<int> missing;
  if (is_done()) return missing;
  for (std::size_t place = 0; place < ranks_.size(); ++place)
    if (!has(place)) missing.push_back(ranks_[place]);
  return missing;
}

}  // namespace echelon
