// The bytes that go from one rank to another in an operation, in order.
//
// Small flows are pushed in a note. Others are read by the receiver out of the sender's memory, where it can: the
// sender offers what it has, and may change it when the receiver says that it is taken. Else they go in messages of a
// chunk each, which the receiver asks for: it opens a place, sends an invitation, and the sender answers with the data
// as soon as it has them. So a send ends only when its receiver wants it, and nothing waits in a buffer.
#pragma once

#include "comm/mpi/wire.h"

namespace echelon {

enum class Way : std::uint8_t { note, memory, message };

/// The same for both ends. No data go in a note where its receiver may be far behind: they would pile up there.
[[nodiscard]] Way way_of(const Wire& wire, CommKind kind, int peer, std::int64_t num_bytes);

/// What the flows of one operation write with: its name is on every note.
struct Correspondence {
  Wire& wire;
  Note letterhead;           // source, id and signature
  std::int64_t& sent_bytes;  // counted here

  void greet(int peer) const;
  void push(int peer, int phase, const std::byte* data, std::int64_t num_bytes) const;
  void invite(int peer, int phase, std::int64_t offset, std::int64_t num_bytes, int place) const;
  void offer(int peer, int phase, std::int64_t offset, std::int64_t num_bytes, const std::byte* data) const;
  /// That the flow is taken up to here.
  void tell_taken(int peer, int phase, std::int64_t end) const;
  void send(const Note& invitation, const std::byte* data, int* num_left) const;
};

/// How much of a flow lies at an address of its sender.
struct Offered {
  std::uint64_t address = 0;
  std::int64_t num_bytes = 0;
  void take(const Note& offer);
};

/// A message under way and where in its flow it ends.
struct MessageEnd {
  std::int64_t end = 0;
  int num_left = 1;
};

class Outflow {
 public:
  Outflow(int peer, int phase, const std::byte* data, std::int64_t num_bytes, Way way)
      : peer_(peer), phase_(phase), data_(data), num_bytes_(num_bytes), way_(way), num_available_(num_bytes) {}

  [[nodiscard]] int peer() const { return peer_; }
  [[nodiscard]] int phase() const { return phase_; }
  /// Only the first `num_bytes` may be sent so far.
  void limit(std::int64_t num_bytes) { num_available_ = num_bytes; }
  /// An invitation, or that something is taken.
  void take(const Note& note);
  void advance(const Correspondence& correspondence);
  /// How much of the data may change again.
  [[nodiscard]] std::int64_t num_sent() const { return num_sent_; }
  [[nodiscard]] bool is_done() const { return is_done_; }

 private:
  int peer_;
  int phase_;
  const std::byte* data_;
  std::int64_t num_bytes_;
  Way way_;
  std::int64_t num_available_;
  std::int64_t num_offered_ = 0;
  std::deque<Note> invitations_;
  std::deque<MessageEnd> under_way_;
  std::int64_t num_sent_ = 0;
  bool is_done_ = false;
};

class Inflow {
 public:
  Inflow(int peer, int phase, std::byte* data, std::int64_t num_bytes, Way way)
      : peer_(peer), phase_(phase), data_(data), num_bytes_(num_bytes), way_(way), num_open_(num_bytes) {}

  [[nodiscard]] int peer() const { return peer_; }
  [[nodiscard]] int phase() const { return phase_; }
  /// Only the first `num_bytes` of the destination may be written so far.
  void limit(std::int64_t num_bytes) { num_open_ = num_bytes; }
  /// An offer, or the whole flow.
  void take(const Note& note, const std::byte* payload);
  /// True if there is more that can be read at once.
  bool advance(const Correspondence& correspondence, std::int64_t chunk_bytes);
  [[nodiscard]] bool is_done() const { return is_done_; }

 private:
  bool read(const Correspondence& correspondence, std::int64_t chunk_bytes);
  void invite(const Correspondence& correspondence, std::int64_t chunk_bytes);

  int peer_;
  int phase_;
  std::byte* data_;
  std::int64_t num_bytes_;
  Way way_;
  std::int64_t num_open_;
  Offered offered_;
  std::int64_t num_read_ = 0;
  std::int64_t num_invited_ = 0;
  std::deque<MessageEnd> under_way_;
  bool is_done_ = false;
};

}  // namespace echelon
