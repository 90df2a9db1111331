// What a thread rank has under way: its side of an exchange, from the start until it was waited for.
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
                  const Contribution& contribution);
  /// Dropping what was not waited for aborts all ranks, and returns when nobody touches the buffers any more.
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
  [[nodiscard]] bool is_done() { return (exchange_.word().load() & done_bit) != 0; }

  ThreadMesh& mesh_;
  Rendezvous& rendezvous_;
  int party_;
  std::int64_t& sent_;
  Exchange& exchange_;
  bool has_left_ = false;
};

}  // namespace echelon
