// Which device of which node every rank of a run is. Ranks fill the nodes in order, so that the innermost axes stay inside a node.
#pragma once

#include "spec/machine_spec.h"
#include "spec/mesh_shape.h"

#include <vector>

namespace echelon {

class DeviceMap {
 public:
  /// It refers to `machine`. Throws Error if the machine has fewer devices than ranks are asked for.
  DeviceMap(const MeshShape& mesh, const MachineSpec& machine);

  [[nodiscard]] const MachineSpec& machine() const { return *machine_; }
  [[nodiscard]] const MeshShape& mesh() const { return mesh_; }
  /// The index of the rank's node among all nodes, and what kind of node that is.
  [[nodiscard]] int node_of(int rank) const;
  [[nodiscard]] const NodeSpec& kind_of(int rank) const;

 private:
  struct Stretch {
    int first_rank = 0, first_node = 0;
    const NodeSpec* kind = nullptr;
  };
  [[nodiscard]] const Stretch& stretch_of(int rank) const;

  MeshShape mesh_;
  const MachineSpec* machine_;
  std::vector<Stretch> stretches_;  // of ranks on nodes of one kind
};

}  // namespace echelon
