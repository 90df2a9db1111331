// Where the ranks of a group meet: the q-th operation that each of them starts is the same exchange.
#pragma once

#include "comm/thread/exchange.h"

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace echelon {

class Rendezvous {
 public:
  /// `ranks` are those of the mesh, in the order of the parties.
  Rendezvous(ThreadWorld& world, std::string group_name, std::vector<int> ranks);

  /// The party's next operation. If others started another one there, all are aborted and Failure names both.
  [[nodiscard]] Exchange& join(int party, const Signature& signature, Contribution contribution);
  /// The party needs the exchange no more; it is done.
  void leave(Exchange& exchange);

  /// Who is late, once a party has waited too long.
  [[nodiscard]] std::string describe_timeout(int party, Exchange& exchange, double seconds);

 private:
  [[nodiscard]] Exchange& next_of(int party, const Signature& signature);
  [[nodiscard]] std::string describe_mismatch(int party, const Signature& signature, Exchange& exchange) const;
  [[nodiscard]] std::string describe(int party, const Signature& signature) const;
  [[nodiscard]] std::string name() const;

  ThreadWorld& world_;
  const std::string group_name_;
  const std::vector<int> ranks_;

  std::mutex mutex_;                       // guards what follows
  std::vector<std::int64_t> num_started_;  // by party
  std::int64_t num_complete_ = 0;          // operations that all parties have started
  std::deque<Exchange*> incomplete_;       // the operations after those
  std::vector<Exchange*> unused_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
};

}  // namespace echelon
