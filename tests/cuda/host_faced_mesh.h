// A device's mesh for callers whose tensors are in the host's memory: every operation goes by way of copies on the
// device. So the conformance suite of the transports, which knows no device, tests one.
#pragma once

#include "comm/mesh.h"
#include "cuda/device/device.h"

#include <map>
#include <memory>

namespace echelon::cuda {

class HostFacedMesh final : public Mesh {
 public:
  HostFacedMesh(Mesh& mesh, Device& device);
  ~HostFacedMesh() override;

  [[nodiscard]] Comm& comm(const Group& group) override;
  void poll() override { mesh_.poll(); }
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return mesh_.sent_bytes(); }
  void abort(const std::string& reason) override { mesh_.abort(reason); }

 private:
  friend class HostFacedComm;
  friend class HostFacedOperation;

  /// Memory for one tensor of an operation. All of it is free again when nothing is under way.
  [[nodiscard]] std::byte* take(std::int64_t num_bytes);

  Mesh& mesh_;
  Device& device_;
  std::byte* memory_;
  std::int64_t num_taken_bytes_ = 0;
  int num_under_way_ = 0;
  std::map<Group, std::unique_ptr<Comm>> comms_;
};

}  // namespace echelon::cuda
