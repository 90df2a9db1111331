// The bytes that go from one rank to another in an operation, in order.
//
// Small flows use the eager protocol: the data follow a note. Larger flows use rendezvous. Where the receiver can read
// the sender's memory, the sender offers its data and may change them after the acknowledgement. Otherwise data are
// sent in chunks: the receiver posts a receive and grants it (clear to send), and the sender answers with the data. So
// a send ends only when its receiver has asked for the data, and nothing is buffered.
#pragma once

#include "comm/mpi/wire.h"

namespace echelon {

enum class Way : std::uint8_t { eager, memory, message };

/// The same for both ends. The eager protocol is not used where the receiver may start much later, since data would
/// pile up there.
[[nodiscard]] Way way_of(const Wire& wire, CommKind kind, int peer, std::int64_t num_bytes);

/// What the flows of one operation share: the header of its notes, and the counter of bytes.
struct FlowContext {
  Wire& wire;
  Note header;               // source, id and signature
  std::int64_t& sent_bytes;  // counted here

  void announce_start(int peer) const;
  void send_eager(int peer, int phase, const std::byte* data, std::int64_t num_bytes) const;
  void grant(int peer, int phase, std::int64_t offset, std::int64_t num_bytes, int place) const;
  void offer(int peer, int phase, std::int64_t offset, std::int64_t num_bytes, const std::byte* data) const;
  /// The flow was received up to here.
  void acknowledge(int peer, int phase, std::int64_t end) const;
  void send(const Note& grant, const std::byte* data, int* num_left) const;
};

/// How much of a flow is available at an address of its sender.
struct Offered {
  std::uint64_t address = 0;
  std::int64_t num_bytes = 0;
  void take(const Note& offer);
};

/// A message in flight, and where in its flow it ends.
struct MessageEnd {
  std::int64_t end = 0;
  int num_left = 1;
};

class SendFlow {
 public:
  SendFlow(int peer, int phase, const std::byte* data, std::int64_t num_bytes, Way way)
      : peer_(peer), phase_(phase), data_(data), num_bytes_(num_bytes), way_(way), num_available_(num_bytes) {}

  [[nodiscard]] int peer() const { return peer_; }
  [[nodiscard]] int phase() const { return phase_; }
  /// Only the first `num_bytes` may be sent so far.
  void limit(std::int64_t num_bytes) { num_available_ = num_bytes; }
  /// A clear_to_send or an acknowledgement.
  void take(const Note& note);
  void advance(const FlowContext& context);
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
  std::deque<Note> granted_;
  std::deque<MessageEnd> under_way_;
  std::int64_t num_sent_ = 0;
  bool is_done_ = false;
};

class ReceiveFlow {
 public:
  ReceiveFlow(int peer, int phase, std::byte* data, std::int64_t num_bytes, Way way)
      : peer_(peer), phase_(phase), data_(data), num_bytes_(num_bytes), way_(way), num_open_(num_bytes) {}

  [[nodiscard]] int peer() const { return peer_; }
  [[nodiscard]] int phase() const { return phase_; }
  /// Only the first `num_bytes` of the destination may be written so far.
  void limit(std::int64_t num_bytes) { num_open_ = num_bytes; }
  /// An offer, or the whole flow.
  void take(const Note& note, const std::byte* payload);
  /// True if there is more that can be read at once.
  bool advance(const FlowContext& context, std::int64_t chunk_bytes);
  [[nodiscard]] bool is_done() const { return is_done_; }

 private:
  bool read(const FlowContext& context, std::int64_t chunk_bytes);
  void invite(const FlowContext& context, std::int64_t chunk_bytes);

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
