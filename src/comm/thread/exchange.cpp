#include "comm/thread/exchange.h"

#include "comm/thread/world.h"

#include <sched.h>
#include <algorithm>
#include <climits>

namespace echelon {
namespace {

class Busy {
 public:
  explicit Busy(std::atomic<int>& count) : count_(count) { count_.fetch_add(1, order::become_busy); }
  ~Busy() { count_.fetch_sub(1, order::end_busy); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

Exchange::Exchange(ThreadWorld& world, int num_parties, DeviceTransport::MakeDeviceExchange make_device_exchange)
    : world_(world),
      chunks_(num_parties),
      device_exchange_(make_device_exchange != nullptr ? make_device_exchange(num_parties) : nullptr),
      has_arrived_(static_cast<std::size_t>(num_parties)),
      sent_rows_(static_cast<std::size_t>(num_parties)) {}

// Relaxed: no other party knows the exchange until it is appended, which is a release.
void Exchange::reset(const Signature& signature, int first_party) {
  signature_ = signature;
  first_party_ = first_party;
  chunks_.reset(signature);
  for (auto& has_arrived : has_arrived_) has_arrived.store(false, std::memory_order_relaxed);
  next.store(nullptr, std::memory_order_relaxed);
  num_released.store(0, std::memory_order_relaxed);
  num_arrived_.store(0, std::memory_order_relaxed);
  word_.store(0, std::memory_order_relaxed);
  next_chunk_.store(0, std::memory_order_relaxed);
  num_done_chunks_.store(0, std::memory_order_relaxed);
}

void Exchange::arrive(int party, const PartyBuffers& buffers, DeviceTransport* transport) {
  if (is_on_device()) {
    device_exchange_->set_buffers(party, *transport, buffers);
    std::int64_t& rows = sent_rows_[static_cast<std::size_t>(party)] = 0;
    for (int i = 0; signature_.has_parts && i < std::ssize(sent_rows_); ++i)
      rows += i == party ? 0 : buffers.in_parts[i].count;
  } else {
    chunks_.set_buffers(party, buffers);
  }
  has_arrived_[static_cast<std::size_t>(party)].store(true, std::memory_order_relaxed);
  if (num_arrived_.fetch_add(1, order::arrive) + 1 < static_cast<int>(has_arrived_.size())) return;
  if (device_exchange_ || chunks_.is_small())
    do_all(transport);
  else
    set(ready_bit, std::max(1, world_.num_permits() - 1));
}

// num_busy_ is incremented before the check of the world, and a leaving rank aborts before it reads num_busy_. So one
// of the two sees the other.
void Exchange::do_all(DeviceTransport* transport) {
  const Busy busy(num_busy_);
  if (world_.is_aborted()) return;
  if (is_on_device())
    device_exchange_->move(*transport, signature_);
  else
    for (std::int64_t chunk = 0; chunk < chunks_.count(); ++chunk) chunks_.perform(chunk);
  set(done_bit, INT_MAX);
}

void Exchange::await_device(DeviceTransport* transport) {
  if (is_on_device()) device_exchange_->await(*transport);
}

std::int64_t Exchange::sent_bytes(int party) const {
  if (!is_on_device()) return chunks_.sent_bytes(party);
  if (signature_.has_parts)
    return sent_rows_[static_cast<std::size_t>(party)] * signature_.num_elements * size_of(signature_.dtype);
  return echelon::sent_bytes(
      {.kind = signature_.kind == CommKind::send && party != 0 ? CommKind::receive : signature_.kind,
       .rank = party,
       .group_size = static_cast<int>(has_arrived_.size()),
       .num_elements = signature_.num_elements,
       .dtype = signature_.dtype,
       .root = signature_.root});
}

bool Exchange::work() {
  if (next_chunk_.load(std::memory_order_relaxed) >= chunks_.count())
    return false;  // if out of date, the claim finds none
  bool worked = false;
  const Busy busy(num_busy_);
  while (!world_.is_aborted()) {
    const std::int64_t chunk = next_chunk_.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= chunks_.count()) break;
    chunks_.perform(chunk);
    worked = true;
    if (num_done_chunks_.fetch_add(1, order::finish_chunk) + 1 == chunks_.count()) set(done_bit, INT_MAX);
  }
  return worked;
}

void Exchange::wait_until_unused() const {
  while (num_busy_.load(order::see_busy) != 0) sched_yield();
}

void Exchange::set(std::uint32_t bit, int num_wakes) {
  word_.fetch_or(bit, order::set_word);
  if (sleepers_.size() > 0) world_.permits().wake(sleepers_, num_wakes);
}

}  // namespace echelon
