// One thread rank's mesh: its communicators and what it has under way. Used by the rank's own thread only.
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
  /// `carrier`: of tensors in a device's memory; null: tensors are in the host's.
  ThreadMesh(ThreadWorld& world, int rank, Carrier* carrier = nullptr)
      : Mesh(world.shape(), rank), world_(world), carrier_(carrier) {}

  [[nodiscard]] Comm& comm(const Group& group) override;
  void poll() override;
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return sent_; }
  /// Returns when nobody touches a buffer of this rank any more.
  void abort(const std::string& reason) override;
  [[nodiscard]] std::unique_ptr<Mesh> carried_by(Carrier& carrier) override {
    return std::make_unique<ThreadMesh>(world_, rank(), &carrier);
  }
  void bind_turns() override { world_.permits().bind(rank()); }

  [[nodiscard]] ThreadWorld& world() { return world_; }
  [[nodiscard]] Carrier* carrier() { return carrier_; }
  /// Throws PeerAborted if the world was aborted, once this rank's buffers are left alone.
  void check_aborted();
  void quiesce() const;
  /// A poll found nothing to do: after several, another rank may compute.
  void rest();

  void add(ThreadOperation& operation) { under_way_.push_back(&operation); }
  void remove(ThreadOperation& operation) { std::erase(under_way_, &operation); }

 private:
  ThreadWorld& world_;
  Carrier* carrier_;
  std::map<Group, std::int64_t> sent_;
  std::map<Group, std::unique_ptr<Comm>> comms_;
  std::vector<ThreadOperation*> under_way_;
  int num_idle_polls_ = 0;
};

}  // namespace echelon
