#include "comm/mpi/flow.h"

#include <algorithm>
#include <cstring>

namespace echelon {
namespace {

constexpr std::size_t most_under_way = 4;  // messages of a flow

}  // namespace

Way way_of(const Wire& wire, CommKind kind, int peer, std::int64_t num_bytes) {
  const bool may_push = kind != CommKind::broadcast && kind != CommKind::send && kind != CommKind::receive;
  if (may_push && num_bytes <= most_pushed_bytes) return Way::note;
  return wire.reads_memory_of(peer) ? Way::memory : Way::message;
}

void Correspondence::greet(int peer) const {
  Note note = letterhead;
  note.kind = NoteKind::greeting;
  wire.send_note(peer, note, nullptr);
}

void Correspondence::push(int peer, int phase, const std::byte* data, std::int64_t num_bytes) const {
  Note note = letterhead;
  note.kind = NoteKind::push;
  note.phase = static_cast<std::uint8_t>(phase);
  note.num_bytes = num_bytes;
  wire.send_note(peer, note, data);
  sent_bytes += num_bytes;
}

void Correspondence::invite(int peer, int phase, std::int64_t offset, std::int64_t num_bytes, int place) const {
  Note note = letterhead;
  note.kind = NoteKind::invitation;
  note.phase = static_cast<std::uint8_t>(phase);
  note.offset = offset;
  note.num_bytes = num_bytes;
  note.place = static_cast<std::uint64_t>(place);
  wire.send_note(peer, note, nullptr);
}

void Correspondence::offer(int peer, int phase, std::int64_t offset, std::int64_t num_bytes,
                           const std::byte* data) const {
  Note note = letterhead;
  note.kind = NoteKind::offer;
  note.phase = static_cast<std::uint8_t>(phase);
  note.offset = offset;
  note.num_bytes = num_bytes;
  note.place = reinterpret_cast<std::uint64_t>(data);
  wire.send_note(peer, note, nullptr);
  sent_bytes += num_bytes;
}

void Correspondence::tell_taken(int peer, int phase, std::int64_t end) const {
  Note note = letterhead;
  note.kind = NoteKind::taken;
  note.phase = static_cast<std::uint8_t>(phase);
  note.offset = end;
  wire.send_note(peer, note, nullptr);
}

void Correspondence::send(const Note& invitation, const std::byte* data, int* num_left) const {
  wire.send(invitation.source, static_cast<int>(invitation.place), data + invitation.offset, invitation.num_bytes,
            num_left);
  sent_bytes += invitation.num_bytes;
}

void Offered::take(const Note& offer) {
  address = offer.place - static_cast<std::uint64_t>(offer.offset);
  num_bytes = offer.offset + offer.num_bytes;
}

void Outflow::take(const Note& note) {
  if (note.kind == NoteKind::taken)
    num_sent_ = note.offset;
  else
    invitations_.push_back(note);
}

void Outflow::advance(const Correspondence& correspondence) {
  if (is_done_) return;
  if (way_ == Way::note) {
    if (num_available_ < num_bytes_) return;
    correspondence.push(peer_, phase_, data_, num_bytes_);
    num_sent_ = num_bytes_;
    is_done_ = true;
    return;
  }
  if (way_ == Way::memory && num_available_ > num_offered_) {
    correspondence.offer(peer_, phase_, num_offered_, num_available_ - num_offered_, data_ + num_offered_);
    num_offered_ = num_available_;
  }
  while (!invitations_.empty() && invitations_.front().offset + invitations_.front().num_bytes <= num_available_) {
    const Note& invitation = invitations_.front();
    under_way_.push_back({.end = invitation.offset + invitation.num_bytes});
    correspondence.send(invitation, data_, &under_way_.back().num_left);
    invitations_.pop_front();
  }
  for (; !under_way_.empty() && under_way_.front().num_left == 0; under_way_.pop_front())
    num_sent_ = under_way_.front().end;
  is_done_ = num_sent_ == num_bytes_;
}

void Inflow::take(const Note& note, const std::byte* payload) {
  if (note.kind == NoteKind::offer) return offered_.take(note);
  if (num_bytes_ > 0) std::memcpy(data_, payload, static_cast<std::size_t>(num_bytes_));
  is_done_ = true;
}

bool Inflow::advance(const Correspondence& correspondence, std::int64_t chunk_bytes) {
  if (is_done_ || way_ == Way::note) return false;
  if (way_ == Way::memory) return read(correspondence, chunk_bytes);
  invite(correspondence, chunk_bytes);
  return false;
}

bool Inflow::read(const Correspondence& correspondence, std::int64_t chunk_bytes) {
  const std::int64_t most = std::min(offered_.num_bytes, num_open_), length = std::min(chunk_bytes, most - num_read_);
  if (length <= 0) return false;
  correspondence.wire.memory().read(peer_, offered_.address + static_cast<std::uint64_t>(num_read_), data_ + num_read_,
                                    length);
  num_read_ += length;
  is_done_ = num_read_ == num_bytes_;
  if (is_done_) correspondence.tell_taken(peer_, phase_, num_bytes_);
  return num_read_ < most;
}

void Inflow::invite(const Correspondence& correspondence, std::int64_t chunk_bytes) {
  while (!under_way_.empty() && under_way_.front().num_left == 0) under_way_.pop_front();
  while (num_invited_ < num_bytes_ && under_way_.size() < most_under_way) {
    const std::int64_t length = std::min(chunk_bytes, num_bytes_ - num_invited_);
    if (num_invited_ + length > num_open_) break;
    under_way_.push_back({.end = num_invited_ + length});
    const int place = correspondence.wire.open_place(peer_, data_ + num_invited_, length, &under_way_.back().num_left);
    correspondence.invite(peer_, phase_, num_invited_, length, place);
    num_invited_ += length;
  }
  is_done_ = num_invited_ == num_bytes_ && under_way_.empty();
}

}  // namespace echelon
