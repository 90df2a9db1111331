// The bytes that go from one rank to another in an operation, in order.
//
// Small flows are pushed in a note. Large ones go in messages of a chunk each, which the receiver asks for: it opens a place, sends an invitation, and the
// sender answers with the data as soon as it has them. So a send ends only when its receiver wants it, and nothing waits in a buffer.
#pragma once

#include "comm/mpi/wire.h"

namespace echelon {

/// Whether a flow goes in a note, unasked. Not where its receiver may be far behind: then notes would pile up there.
[[nodiscard]] bool is_pushed(CommKind kind, std::int64_t num_bytes);

/// What the flows of one operation write with: its name is on every note.
struct Correspondence {
  Wire& wire;
  Note letterhead;           // source, id and signature
  std::int64_t& sent_bytes;  // counted here

  void greet(int peer) const;
  void push(int peer, int phase, const std::byte* data, std::int64_t num_bytes) const;
  void invite(int peer, int phase, std::int64_t offset, std::int64_t num_bytes, int place) const;
  void send(const Note& invitation, const std::byte* data, int* num_left) const;
};

/// A message under way and where in its flow it ends.
struct MessageEnd {
  std::int64_t end = 0;
  int num_left = 1;
};

class Outflow {
 public:
  Outflow(int peer, int phase, const std::byte* data, std::int64_t num_bytes, bool is_pushed)
      : peer_(peer), phase_(phase), data_(data), num_bytes_(num_bytes), is_pushed_(is_pushed), num_available_(num_bytes) {}

  [[nodiscard]] int peer() const { return peer_; }
  [[nodiscard]] int phase() const { return phase_; }
  /// Only the first `num_bytes` may be sent so far.
  void limit(std::int64_t num_bytes) { num_available_ = num_bytes; }
  void take_invitation(const Note& note) { invitations_.push_back(note); }
  void advance(const Correspondence& correspondence);
  /// How much of the data may change again.
  [[nodiscard]] std::int64_t num_sent() const { return num_sent_; }
  [[nodiscard]] bool is_done() const { return is_done_; }

 private:
  int peer_;
  int phase_;
  const std::byte* data_;
  std::int64_t num_bytes_;
  bool is_pushed_;
  std::int64_t num_available_;
  std::deque<Note> invitations_;
  std::deque<MessageEnd> under_way_;
  std::int64_t num_sent_ = 0;
  bool is_done_ = false;
};

class Inflow {
 public:
  Inflow(int peer, int phase, std::byte* data, std::int64_t num_bytes, bool is_pushed)
      : peer_(peer), phase_(phase), data_(data), num_bytes_(num_bytes), is_pushed_(is_pushed), num_open_(num_bytes) {}

  [[nodiscard]] int peer() const { return peer_; }
  [[nodiscard]] int phase() const { return phase_; }
  /// Only the first `num_bytes` of the destination may be written so far.
  void limit(std::int64_t num_bytes) { num_open_ = num_bytes; }
  void take_push(const std::byte* payload);
  void advance(const Correspondence& correspondence, std::int64_t chunk_bytes);
  [[nodiscard]] bool is_done() const { return is_done_; }

 private:
  int peer_;
  int phase_;
  std::byte* data_;
  std::int64_t num_bytes_;
  bool is_pushed_;
  std::int64_t num_open_;
  std::int64_t num_invited_ = 0;
  std::deque<MessageEnd> under_way_;
  bool is_done_ = false;
};

}  // namespace echelon
