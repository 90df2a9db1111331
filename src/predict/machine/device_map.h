// Which device of which node every rank of a run is, and how the ranks of a group are spread over nodes. Ranks fill the
// nodes in order, so that the innermost axes of the mesh stay inside a node.
#pragma once

#include "spec/machine/machine_spec.h"
#include "spec/mesh_shape.h"

#include <optional>
#include <vector>

namespace echelon {

/// How the ranks of a group are spread over nodes, and their share of the hardware.
struct GroupPlacement {
  int num_ranks = 1;
  int num_nodes = 1;
  int ranks_per_node = 1;          // on the node with the most of them
  int num_leaves = 1;              // switches that join nodes
  const NodeLink* link = nullptr;  // the slowest of their nodes'
  // Bytes per second in one direction that the group has of a node's cards while the other groups use theirs.
  double cards_bandwidth = 0;
};

class DeviceMap {
 public:
  /// It refers to `machine`. Throws Error if the machine has fewer devices than ranks are asked for, or no network
  /// between nodes that need one.
  DeviceMap(const MeshShape& mesh, const MachineSpec& machine);

  [[nodiscard]] const MachineSpec& machine() const { return *machine_; }
  [[nodiscard]] const MeshShape& mesh() const { return mesh_; }
  /// The index of the rank's node among all nodes, and what kind of node that is.
  [[nodiscard]] int node_of(int rank) const;
  [[nodiscard]] const NodeSpec& kind_of(int rank) const;
  /// The index of the switch above the rank's node, and the position of the card next to the rank's device: a rail
  /// joins the cards of one position.
  [[nodiscard]] int leaf_of(int rank) const;
  [[nodiscard]] int rail_of(int rank) const;

  /// Whether there are ranks on nodes of more than one kind.
  [[nodiscard]] bool has_several_kinds() const { return stretches_.size() > 1; }
  /// Whether every axis is inside of nodes, or across whole ones, and all nodes are of one kind. Then all ranks have
  /// the same placement relative to others.
  [[nodiscard]] bool divides_into_nodes() const;
  /// Whether what switches join makes a difference: where they are oversubscribed.
  [[nodiscard]] bool counts_leaves() const {
    return machine_->network.nodes_per_leaf > 0 && machine_->network.oversubscription > 1;
  }
  /// Whether it divides into nodes, and into switches where they make a difference.
  [[nodiscard]] bool is_regular() const;

  /// Of the group that `rank` is in. The other groups of the same axes communicate at the same time and share the cards
  /// of their nodes. Arithmetic on strides where the mesh divides into the nodes; else the ranks are counted.
  [[nodiscard]] GroupPlacement placement_of(const Group& group, int rank) const;
  /// Of a transfer between two ranks. As many ranks of the node send at the same time as have a peer at that distance
  /// on another node.
  [[nodiscard]] GroupPlacement placement_of_pair(int rank, int peer) const;
  /// Of a transfer between neighbours, while all ranks along an axis send to the next one and the last to the first:
  /// of the slowest of them along the axis of `rank`. A node's cards carry what leaves the node. `num_rings`: ranks in
  /// a row are in different rings.
  [[nodiscard]] GroupPlacement placement_of_rings(Axis axis, int num_rings, int rank) const;
  /// Of the slowest of the blocks of `size` ranks in a row along an axis, of which `rank` is in one.
  [[nodiscard]] GroupPlacement placement_of_blocks(Axis axis, int size, int rank) const;

 private:
  /// Ranks on nodes of one kind.
  struct Stretch {
    int first_rank = 0, first_node = 0;
    int ranks_per_node = 1;
    const NodeSpec* kind = nullptr;
  };
  [[nodiscard]] const Stretch& stretch_of(int rank) const;
  [[nodiscard]] bool divides_into(std::int64_t block) const;
  [[nodiscard]] std::optional<int> members_within(const Group& group, std::int64_t block) const;
  [[nodiscard]] GroupPlacement placement_of_ranks(std::vector<int> ranks) const;
  [[nodiscard]] GroupPlacement placement_of_pair(int rank, int peer, int num_sharers) const;
  [[nodiscard]] double share_of_cards(const Stretch& stretch, double num_sharers, int ranks_per_node) const;

  MeshShape mesh_;
  const MachineSpec* machine_;
  std::vector<Stretch> stretches_;
};

}  // namespace echelon
