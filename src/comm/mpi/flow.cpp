#include "comm/mpi/flow.h"

#include <algorithm>
#include <cstring>

namespace echelon {
namespace {

constexpr std::size_t most_under_way = 4;  // messages of a flow

}  // namespace

Way way_of(const Wire& wire, CommKind kind, int peer, std::int64_t num_bytes) {
  const bool may_be_eager = kind != CommKind::broadcast && kind != CommKind::send && kind != CommKind::receive;
  if (may_be_eager && num_bytes <= most_eager_bytes) return Way::eager;
  return wire.reads_memory_of(peer) ? Way::memory : Way::message;
}

void FlowContext::announce_start(int peer) const {
  Note note = header;
  note.kind = NoteKind::started;
  wire.send_note(peer, note, nullptr);
}

void FlowContext::send_eager(int peer, int phase, const std::byte* data, std::int64_t num_bytes) const {
  Note note = header;
  note.kind = NoteKind::eager;
  note.phase = static_cast<std::uint8_t>(phase);
  note.num_bytes = num_bytes;
  wire.send_note(peer, note, data);
  sent_bytes += num_bytes;
}

void FlowContext::grant(int peer, int phase, std::int64_t offset, std::int64_t num_bytes, int place) const {
  Note note = header;
  note.kind = NoteKind::clear_to_send;
  note.phase = static_cast<std::uint8_t>(phase);
  note.offset = offset;
  note.num_bytes = num_bytes;
  note.place = static_cast<std::uint64_t>(place);
  wire.send_note(peer, note, nullptr);
}

void FlowContext::offer(int peer, int phase, std::int64_t offset, std::int64_t num_bytes, const std::byte* data) const {
  Note note = header;
  note.kind = NoteKind::offer;
  note.phase = static_cast<std::uint8_t>(phase);
  note.offset = offset;
  note.num_bytes = num_bytes;
  note.place = reinterpret_cast<std::uint64_t>(data);
  wire.send_note(peer, note, nullptr);
  sent_bytes += num_bytes;
}

void FlowContext::acknowledge(int peer, int phase, std::int64_t end) const {
  Note note = header;
  note.kind = NoteKind::acknowledgement;
  note.phase = static_cast<std::uint8_t>(phase);
  note.offset = end;
  wire.send_note(peer, note, nullptr);
}

void FlowContext::send(const Note& grant, const std::byte* data, int* num_left) const {
  wire.send(grant.source, static_cast<int>(grant.place), data + grant.offset, grant.num_bytes, num_left);
  sent_bytes += grant.num_bytes;
}

void Offered::take(const Note& offer) {
  address = offer.place - static_cast<std::uint64_t>(offer.offset);
  num_bytes = offer.offset + offer.num_bytes;
}

void SendFlow::take(const Note& note) {
  if (note.kind == NoteKind::acknowledgement)
    num_sent_ = note.offset;
  else
    granted_.push_back(note);
}

void SendFlow::advance(const FlowContext& context) {
  if (is_done_) return;
  if (way_ == Way::eager) {
    if (num_available_ < num_bytes_) return;
    context.send_eager(peer_, phase_, data_, num_bytes_);
    num_sent_ = num_bytes_;
    is_done_ = true;
    return;
  }
  if (way_ == Way::memory && num_available_ > num_offered_) {
    context.offer(peer_, phase_, num_offered_, num_available_ - num_offered_, data_ + num_offered_);
    num_offered_ = num_available_;
  }
  while (!granted_.empty() && granted_.front().offset + granted_.front().num_bytes <= num_available_) {
    const Note& grant = granted_.front();
    under_way_.push_back({.end = grant.offset + grant.num_bytes});
    context.send(grant, data_, &under_way_.back().num_left);
    granted_.pop_front();
  }
  for (; !under_way_.empty() && under_way_.front().num_left == 0; under_way_.pop_front())
    num_sent_ = under_way_.front().end;
  is_done_ = num_sent_ == num_bytes_;
}

void ReceiveFlow::take(const Note& note, const std::byte* payload) {
  if (note.kind == NoteKind::offer) return offered_.take(note);
  if (num_bytes_ > 0) std::memcpy(data_, payload, static_cast<std::size_t>(num_bytes_));
  is_done_ = true;
}

bool ReceiveFlow::advance(const FlowContext& context, std::int64_t chunk_bytes) {
  if (is_done_ || way_ == Way::eager) return false;
  if (way_ == Way::memory) return read(context, chunk_bytes);
  invite(context, chunk_bytes);
  return false;
}

bool ReceiveFlow::read(const FlowContext& context, std::int64_t chunk_bytes) {
  const std::int64_t most = std::min(offered_.num_bytes, num_open_), length = std::min(chunk_bytes, most - num_read_);
  if (length <= 0) return false;
  context.wire.memory().read(peer_, offered_.address + static_cast<std::uint64_t>(num_read_), data_ + num_read_,
                             length);
  num_read_ += length;
  is_done_ = num_read_ == num_bytes_;
  if (is_done_) context.acknowledge(peer_, phase_, num_bytes_);
  return num_read_ < most;
}

void ReceiveFlow::invite(const FlowContext& context, std::int64_t chunk_bytes) {
  while (!under_way_.empty() && under_way_.front().num_left == 0) under_way_.pop_front();
  while (num_invited_ < num_bytes_ && under_way_.size() < most_under_way) {
    const std::int64_t length = std::min(chunk_bytes, num_bytes_ - num_invited_);
    if (num_invited_ + length > num_open_) break;
    under_way_.push_back({.end = num_invited_ + length});
    const int place = context.wire.open_place(peer_, data_ + num_invited_, length, &under_way_.back().num_left);
    context.grant(peer_, phase_, num_invited_, length, place);
    num_invited_ += length;
  }
  is_done_ = num_invited_ == num_bytes_ && under_way_.empty();
}

}  // namespace echelon
