// One operation of a group: who has arrived, and the chunks of its work, which are claimed and never assigned.
//
// Numbers of a device are no work for threads: the last party to arrive has the device move them (comm/carrier.h), and
// the exchange is done when that is enqueued.
//
// Whoever waits or polls claims chunks with a fetch_add until none is left. (If every rank did a share of its own in
// its own wait, ranks that wait in different orders would deadlock.)
#pragma once

#include "comm/signature.h"
#include "comm/thread/chunks.h"
#include "comm/thread/permits.h"

#include <atomic>
#include <memory>
#include <vector>

namespace echelon {

class ThreadWorld;

// The bits of an exchange's word; it is 0 until all parties have arrived.
inline constexpr std::uint32_t ready_bit = 1;  // chunks may be claimed
inline constexpr std::uint32_t done_bit = 2;   // the last chunk has ended

class Exchange {
 public:
  /// Without `make_shipment`, threads do the work.
  Exchange(ThreadWorld& world, int num_parties, Carrier::MakeShipment make_shipment);

  /// Ready for another operation; nobody else may know it.
  void reset(const Signature& signature, int first_party);
  [[nodiscard]] const Signature& signature() const { return signature_; }
  /// The party that started it first.
  [[nodiscard]] int first_party() const { return first_party_; }

  /// The last party to arrive does a small exchange at once, and opens a large one to whoever waits. `carrier`: the
  /// party's, where there are shipments.
  void arrive(int party, const Contribution& contribution, Carrier* carrier);
  [[nodiscard]] bool has_arrived(int party) const { return has_arrived_[static_cast<std::size_t>(party)].load(); }

  /// Claims chunks while there are any; true if it did one.
  bool work();
  /// Once done: what the party's device is given from now on finds the results.
  void await_shipment(Carrier* carrier);
  /// Once done: whether the results are there already.
  [[nodiscard]] bool has_shipment_arrived() const { return !is_shipped() || shipment_->has_arrived(); }
  [[nodiscard]] std::int64_t sent_bytes(int party) const;

  [[nodiscard]] const std::atomic<std::uint32_t>& word() const { return word_; }
  [[nodiscard]] RankQueue& sleepers() { return sleepers_; }

  /// Returns when nobody touches the parties' buffers any more. Only after the world was aborted.
  void quiesce() const;

  // The rendezvous' own.
  std::atomic<Exchange*> next = nullptr;  // the operation after this one
  std::atomic<int> num_released = 0;

 private:
  [[nodiscard]] bool is_shipped() const { return shipment_ && signature_.num_elements > 0; }
  void do_all(Carrier* carrier);
  void set(std::uint32_t bit, int num_wakes);

  ThreadWorld& world_;
  Signature signature_;
  int first_party_ = 0;
  Chunks chunks_;
  std::unique_ptr<Shipment> shipment_;
  std::vector<std::atomic<bool>> has_arrived_;

  alignas(64) std::atomic<int> num_arrived_ = 0;
  std::atomic<std::uint32_t> word_ = 0;
  RankQueue sleepers_;
  alignas(64) std::atomic<std::int64_t> next_chunk_ = 0;
  std::atomic<std::int64_t> num_done_chunks_ = 0;
  std::atomic<int> num_busy_ = 0;
};

}  // namespace echelon
