// Where the ranks of a group meet: the q-th operation that each of them starts is the same exchange.
//
// The exchanges are a chain that the first to come prolongs, and every party walks along it on its own. An exchange is
// used again when all parties have left it and all have gone on to the next. So no party ever waits here for another
// one, and starting an operation costs an atomic step or two.
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
  Rendezvous(ThreadWorld& world, std::string group_name, std::vector<int> ranks, Carrier::MakeShipment make_shipment);

  /// The party's next operation. If others started another one there, all are aborted and Failure names both.
  [[nodiscard]] Exchange& join(int party, const Signature& signature, const Contribution& contribution,
                               Carrier* carrier);
  /// The party needs the exchange no more; it is done.
  void leave(int party, Exchange& exchange);

  /// Who is late, once a party has waited too long.
  [[nodiscard]] std::string describe_timeout(int party, const Exchange& exchange, double seconds) const;

 private:
  // Where a party is. Touched by this party only.
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
  const Carrier::MakeShipment make_shipment_;
  std::vector<Cursor> cursors_;

  std::atomic<Exchange*> spare_ = nullptr;  // one unused exchange, without the mutex
  std::mutex mutex_;                        // guards what follows
  std::vector<Exchange*> unused_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
};

}  // namespace echelon
