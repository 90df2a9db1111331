// An operation in progress on a thread rank: its side of an exchange, from the start to the wait.
#pragma once

#include "comm/thread/rendezvous.h"
#include "comm/thread/thread_mesh.h"

namespace echelon {

/// A rank's place in a rendezvous, and where the bytes are counted that it sends there.
struct Membership {
  Rendezvous& rendezvous;
  int party;
  std::int64_t& sent;
};

class ThreadOperation final : public Pending::Operation {
 public:
  /// Joins the exchange.
  ThreadOperation(ThreadMesh& mesh, const Membership& membership, const Signature& signature,
                  const PartyBuffers& buffers);
  /// Dropping an operation that was not waited for aborts all ranks, and returns when no thread uses the buffers any
  /// more.
  ~ThreadOperation() override;
  ThreadOperation(const ThreadOperation&) = delete;
  ThreadOperation& operator=(const ThreadOperation&) = delete;

  void wait() override;
  bool poll() override;

  /// Claims chunks if all have arrived; true if it did one.
  bool advance();
  [[nodiscard]] Exchange& exchange() { return exchange_; }

 private:
  void take_results();
  void leave();
  void sleep(std::uint32_t seen, Deadline deadline);
  [[nodiscard]] bool is_done() { return (exchange_.word().load(order::see_word) & done_bit) != 0; }

  ThreadMesh& mesh_;
  Rendezvous& rendezvous_;
  int party_;
  std::int64_t& sent_;
  Exchange& exchange_;
  bool has_left_ = false;
};

}  // namespace echelon
