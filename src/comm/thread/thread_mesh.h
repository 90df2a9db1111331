// One thread rank's mesh: its communicators and its operations in progress. Used by the rank's own thread only.
#pragma once

#include "comm/thread/world.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace echelon {

class ThreadOperation;

class ThreadMesh final : public Mesh {
 public:
  /// `transport`: of tensors in a device's memory; null: tensors are in the host's.
  ThreadMesh(ThreadWorld& world, int rank, DeviceTransport* transport = nullptr)
      : Mesh(world.shape(), rank), world_(world), device_transport_(transport) {}

  [[nodiscard]] Comm& comm(const Group& group) override;
  void poll() override;
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return sent_; }
  /// Returns when no thread uses a buffer of this rank any more.
  void abort(const std::string& reason) override;
  [[nodiscard]] std::unique_ptr<Mesh> for_device(DeviceTransport& transport) override {
    return std::make_unique<ThreadMesh>(world_, rank(), &transport);
  }
  void bind_turns() override { world_.permits().bind(rank()); }

  [[nodiscard]] ThreadWorld& world() { return world_; }
  [[nodiscard]] DeviceTransport* transport() { return device_transport_; }
  /// Throws PeerAborted if the world was aborted, after no thread uses this rank's buffers any more.
  void check_aborted();
  void wait_until_unused() const;
  /// Called when a poll found nothing to do. After several, it yields to another rank.
  void rest();

  void add(ThreadOperation& operation) { under_way_.push_back(&operation); }
  void remove(ThreadOperation& operation) { std::erase(under_way_, &operation); }

 private:
  ThreadWorld& world_;
  DeviceTransport* device_transport_;
  std::map<Group, std::int64_t> sent_;
  std::map<Group, std::unique_ptr<Comm>> comms_;
  std::vector<ThreadOperation*> under_way_;
  int num_idle_polls_ = 0;
};

}  // namespace echelon
