#include "comm/thread/world.h"

#include "machine/cores.h"
#include "machine/cpus.h"

#include <algorithm>

namespace echelon {
namespace {

int permits_of(const ThreadOptions& options) {
  return options.compute_permits > 0 ? options.compute_permits : num_usable_cores();
}

Deadline::duration in_clock(double seconds) {
  return std::chrono::duration_cast<Deadline::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

ThreadGroup::ThreadGroup(ThreadWorld& world, std::string name, std::vector<int> ranks,
                         DeviceTransport::MakeDeviceExchange make_device_exchange)
    : world_(world),
      name_(std::move(name)),
      ranks_(std::move(ranks)),
      make_device_exchange_(make_device_exchange),
      collectives_(world_, name_, ranks_, make_device_exchange_) {}

Rendezvous& ThreadGroup::transfers(int source, int destination) {
  const std::lock_guard lock(mutex_);
  auto& transfers = transfers_[{source, destination}];
  if (!transfers) {
    const std::vector<int> pair = {ranks_[static_cast<std::size_t>(source)],
                                   ranks_[static_cast<std::size_t>(destination)]};
    transfers = std::make_unique<Rendezvous>(world_, name_, pair, make_device_exchange_);
  }
  return *transfers;
}

ThreadWorld::ThreadWorld(const MeshShape& shape, const ThreadOptions& options)
    : shape_(shape),
      timeout_seconds_(options.timeout_seconds),
      time_to_return_(in_clock(options.return_seconds)),
      num_permits_(permits_of(options)),
      permits_(num_permits_, shape.num_ranks(),
               shape.num_ranks() > num_permits_ ? divide_cores(allowed_cpus(), num_permits_) : std::vector<CpuSet>()),
      lending_(shape.num_ranks(), permits_) {}

ThreadGroup& ThreadWorld::group(const Group& group, const std::vector<int>& ranks,
                                DeviceTransport::MakeDeviceExchange make_device_exchange) {
  const std::lock_guard lock(mutex_);
  auto& shared = groups_[{ranks, make_device_exchange}];
  if (!shared) shared = std::make_unique<ThreadGroup>(*this, name_of(group), ranks, make_device_exchange);
  return *shared;
}

Deadline ThreadWorld::deadline() const { return std::chrono::steady_clock::now() + in_clock(timeout_seconds_); }

void ThreadWorld::abort(const std::string& reason, Deadline last_work) {
  {
    const std::lock_guard lock(mutex_);
    if (is_aborted_.load(std::memory_order_relaxed)) return;  // stored under the mutex only
    abort_reason_ = reason;
    return_deadline_ = last_work + time_to_return_;
    is_aborted_.store(true, order::abort);
  }
  permits_.wake_all();
}

std::string ThreadWorld::abort_reason() {
  const std::lock_guard lock(mutex_);
  return abort_reason_;
}

Deadline ThreadWorld::return_deadline() {
  const std::lock_guard lock(mutex_);
  return return_deadline_;
}

}  // namespace echelon
