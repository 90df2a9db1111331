// One operation of a group: the parties that have arrived, and the chunks of its work, which threads claim.
//
// Tensors in device memory are moved by the device (comm/device_transport.h): the last party to arrive enqueues that,
// and then the exchange is done.
//
// A thread that waits or polls claims chunks with a fetch_add until none is left. (If every rank did a fixed share in
// its own wait, ranks that wait in different orders would deadlock.)
#pragma once

#include "comm/signature.h"
#include "comm/thread/chunks.h"
#include "comm/thread/orders.h"
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
  /// Without `make_device_exchange`, threads do the work.
  Exchange(ThreadWorld& world, int num_parties, DeviceTransport::MakeDeviceExchange make_device_exchange);

  /// Resets it for another operation, before any other party uses it.
  void reset(const Signature& signature, int first_party);
  [[nodiscard]] const Signature& signature() const { return signature_; }
  /// The party that started it first.
  [[nodiscard]] int first_party() const { return first_party_; }

  /// The last party to arrive does a small exchange at once, and opens a large one to the waiting threads. `transport`:
  /// the party's, where a device moves the data.
  void arrive(int party, const PartyBuffers& buffers, DeviceTransport* transport);
  /// For messages: it may be out of date, since it is stored and loaded without an order.
  [[nodiscard]] bool has_arrived(int party) const {
    return has_arrived_[static_cast<std::size_t>(party)].load(std::memory_order_relaxed);
  }

  /// Claims chunks while there are any; true if it did one.
  bool work();
  /// Once done: later work on the party's device waits for the results.
  void await_device(DeviceTransport* transport);
  /// Once done: whether the device has the results.
  [[nodiscard]] bool is_device_done() const { return !is_on_device() || device_exchange_->has_arrived(); }
  [[nodiscard]] std::int64_t sent_bytes(int party) const;

  [[nodiscard]] const std::atomic<std::uint32_t>& word() const { return word_; }
  [[nodiscard]] RankQueue& sleepers() { return sleepers_; }

  /// Returns when no thread uses the parties' buffers any more. Only after the world was aborted.
  void wait_until_unused() const;

  // For the rendezvous alone.
  std::atomic<Exchange*> next = nullptr;  // the operation after this one
  std::atomic<int> num_released = 0;

 private:
  [[nodiscard]] bool is_on_device() const { return device_exchange_ && signature_.num_elements > 0; }
  void do_all(DeviceTransport* transport);
  void set(std::uint32_t bit, int num_wakes);

  ThreadWorld& world_;
  Signature signature_;
  int first_party_ = 0;
  Chunks chunks_;
  std::unique_ptr<DeviceExchange> device_exchange_;
  std::vector<std::atomic<bool>> has_arrived_;
  std::vector<std::int64_t> sent_rows_;  // to other parties, by party: of unequal parts that a device moves

  alignas(64) std::atomic<int> num_arrived_ = 0;
  std::atomic<std::uint32_t> word_ = 0;
  RankQueue sleepers_;
  alignas(64) std::atomic<std::int64_t> next_chunk_ = 0;
  std::atomic<std::int64_t> num_done_chunks_ = 0;
  std::atomic<int> num_busy_ = 0;
};

}  // namespace echelon
