// What of a device's memory a rank's arena may have: the rest is taken by the driver, libraries and NCCL.
#pragma once

#include "spec/config/run_config.h"
#include "spec/machine/machine_spec.h"

namespace echelon {

/// Groups of a run that are no whole axes of its mesh.
struct PartialGroups {
  bool has_tied_weight = false;
  int kv_replicas = 1;  // tensor-parallel ranks that hold the same kv head
  int head_ranks = 1;   // context-parallel ranks that exchange heads
  int ring_ranks = 1;   // context-parallel ranks that pass keys on in a ring
  bool has_experts = false;
  // Ranks that have the experts of a layer together, and of these, those with features of the same experts.
  int expert_ranks = 1, feature_ranks = 1;
};
[[nodiscard]] PartialGroups partial_groups(const ModelSpec& model, int tp, int cp, const KeyExchange& exchange);
[[nodiscard]] PartialGroups partial_groups(const RunConfig& config);

/// The communicators of a rank, by the thread blocks that each may use (spec/groups.h).
struct Communicators {
  int with_any_blocks = 0, with_data_blocks = 0, with_transfer_blocks = 0;
  [[nodiscard]] int total() const { return with_any_blocks + with_data_blocks + with_transfer_blocks; }
};

/// Those that a rank in the middle of the mesh connects: one for each group of ranks, however many purposes it has, and
/// one for the transfers of a ring. In a pipeline one more for each direction to each neighbour.
[[nodiscard]] Communicators communicators_of(const MeshShape& mesh, const PartialGroups& parts);

/// Of `device`, for a rank with these communicators; 0 if they leave nothing. Those that share buffers with another one
/// count in full: neighbours in their rings may be others.
[[nodiscard]] std::int64_t arena_limit_bytes(const DeviceSpec& device, const Communicators& communicators);

}  // namespace echelon
