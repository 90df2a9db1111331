#include "comm/mpi/flow.h"

#include <algorithm>
#include <cstring>

namespace echelon {
namespace {

constexpr std::size_t most_under_way = 4;  // messages of a flow

}  // namespace

bool is_pushed(CommKind kind, std::int64_t num_bytes) {
  return kind != CommKind::broadcast && kind != CommKind::send && kind != CommKind::receive && num_bytes <= most_pushed_bytes;
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
  note.place = place;
  wire.send_note(peer, note, nullptr);
}

void Correspondence::send(const Note& invitation, const std::byte* data, int* num_left) const {
  wire.send(invitation.source, invitation.place, data + invitation.offset, invitation.num_bytes, num_left);
  sent_bytes += invitation.num_bytes;
}

void Outflow::advance(const Correspondence& correspondence) {
  if (is_done_) return;
  if (is_pushed_) {
    if (num_available_ < num_bytes_) return;
    correspondence.push(peer_, phase_, data_, num_bytes_);
    num_sent_ = num_bytes_;
    is_done_ = true;
    return;
  }
  while (!invitations_.empty() && invitations_.front().offset + invitations_.front().num_bytes <= num_available_) {
    const Note& invitation = invitations_.front();
    under_way_.push_back({.end = invitation.offset + invitation.num_bytes});
    correspondence.send(invitation, data_, &under_way_.back().num_left);
    invitations_.pop_front();
  }
  for (; !under_way_.empty() && under_way_.front().num_left == 0; under_way_.pop_front()) num_sent_ = under_way_.front().end;
  is_done_ = num_sent_ == num_bytes_;
}

void Inflow::take_push(const std::byte* payload) {
  if (num_bytes_ > 0) std::memcpy(data_, payload, static_cast<std::size_t>(num_bytes_));
  is_done_ = true;
}

void Inflow::advance(const Correspondence& correspondence, std::int64_t chunk_bytes) {
  if (is_done_ || is_pushed_) return;
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
