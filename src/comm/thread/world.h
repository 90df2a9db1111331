// What the thread ranks of one process share: permits, the rendezvous of every group, and the abort state.
#pragma once

#include "base/error.h"
#include "comm/mesh.h"
#include "comm/thread/orders.h"
#include "comm/thread/permits.h"
#include "comm/thread/rendezvous.h"
#include "comm/thread/thread_world.h"

#include <memory>
#include <mutex>
#include <vector>

namespace echelon {

/// A group of ranks: one rendezvous for its collectives and one per (source, destination), made on first use.
class ThreadGroup {
 public:
  ThreadGroup(ThreadWorld& world, std::string name, std::vector<int> ranks,
              DeviceTransport::MakeDeviceExchange make_device_exchange);
  [[nodiscard]] Rendezvous& collectives() { return collectives_; }
  [[nodiscard]] Rendezvous& transfers(int source, int destination);

 private:
  ThreadWorld& world_;
  std::string name_;
  std::vector<int> ranks_;
  DeviceTransport::MakeDeviceExchange make_device_exchange_;
  Rendezvous collectives_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::unique_ptr<Rendezvous>> transfers_;
};

class ThreadWorld {
 public:
  ThreadWorld(const MeshShape& shape, const ThreadOptions& options);

  [[nodiscard]] const MeshShape& shape() const { return shape_; }
  [[nodiscard]] double timeout_seconds() const { return timeout_seconds_; }
  [[nodiscard]] Deadline::duration time_to_return() const { return time_to_return_; }
  [[nodiscard]] int num_permits() const { return num_permits_; }
  [[nodiscard]] Permits& permits() { return permits_; }
  [[nodiscard]] Lending& lending() { return lending_; }

  /// Groups with the same ranks and exchange_factory are one, whatever their names.
  [[nodiscard]] ThreadGroup& group(const Group& group, const std::vector<int>& ranks,
                                   DeviceTransport::MakeDeviceExchange make_device_exchange);

  /// When a wait that starts now takes too long.
  [[nodiscard]] Deadline deadline() const;

  /// The first reason stays. Ranks that compute may do so for comm.timeout_seconds before they return.
  void abort(const std::string& reason) { abort(reason, deadline()); }
  /// Likewise, when a rank was late by comm.timeout_seconds already.
  void abort_after_timeout(const std::string& reason) { abort(reason, std::chrono::steady_clock::now()); }
  [[nodiscard]] bool is_aborted() const { return is_aborted_.load(order::see_abort); }
  [[nodiscard]] std::string abort_reason();
  /// When all ranks should have returned, once the world is aborted.
  [[nodiscard]] Deadline return_deadline();

 private:
  void abort(const std::string& reason, Deadline last_work);

  const MeshShape shape_;
  const double timeout_seconds_;
  const Deadline::duration time_to_return_;
  const int num_permits_;
  Permits permits_;
  Lending lending_;
  std::atomic<bool> is_aborted_ = false;

  std::mutex mutex_;  // guards what follows
  std::string abort_reason_;
  Deadline return_deadline_ = {};
  std::map<std::pair<std::vector<int>, DeviceTransport::MakeDeviceExchange>, std::unique_ptr<ThreadGroup>> groups_;
};

}  // namespace echelon
