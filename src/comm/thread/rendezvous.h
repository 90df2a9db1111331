// Matches the operations of a group's ranks: the q-th operation that each of them starts is the same exchange.
//
// The exchanges are a linked list. The first party to arrive extends it, and every party walks along it independently.
// An exchange is reused when all parties have left it and joined the next. So no party waits here for another one, and
// starting an operation costs one or two atomic operations.
#pragma once

#include "comm/thread/exchange.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace echelon {

class Rendezvous {
 public:
  /// `ranks` are those of the mesh, in the order of the parties.
  Rendezvous(ThreadWorld& world, std::string group_name, std::vector<int> ranks,
             DeviceTransport::MakeDeviceExchange make_device_exchange);

  /// The party's next operation. If others started a different one, all ranks are aborted and Failure names both.
  [[nodiscard]] Exchange& join(int party, const Signature& signature, const PartyBuffers& buffers,
                               DeviceTransport* transport);
  /// The party does not need the exchange any more; it is done.
  void leave(int party, Exchange& exchange);

  /// The late ranks, after a party has timed out.
  [[nodiscard]] std::string describe_timeout(int party, const Exchange& exchange, double seconds) const;

 private:
  // The position of a party. Used by this party only.
  struct alignas(64) Cursor {
    Exchange* last = nullptr;  // that it joined
    bool has_left_last = true;
    std::int64_t num_started = 0;
  };

  [[nodiscard]] Exchange& after(Exchange& last, const Signature& signature, int party);
  [[nodiscard]] Exchange* take();
  void give(Exchange* exchange);
  void release(Exchange& exchange);
  [[nodiscard]] std::string describe_mismatch(int party, const Signature& signature, const Exchange& exchange) const;
  [[nodiscard]] std::string describe(int party, const Signature& signature) const;
  [[nodiscard]] std::string name() const;

  ThreadWorld& world_;
  const std::string group_name_;
  const std::vector<int> ranks_;
  const DeviceTransport::MakeDeviceExchange make_device_exchange_;
  std::vector<Cursor> cursors_;

  std::atomic<Exchange*> spare_ = nullptr;  // one unused exchange, without the mutex
  std::mutex mutex_;                        // guards what follows
  std::vector<Exchange*> unused_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
};

}  // namespace echelon
