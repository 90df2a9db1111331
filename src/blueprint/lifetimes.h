// From when to when each buffer of a program lives, read off the order of its actions and their edges. The blueprint
// and the search for a layout give these lifetimes the sizes that are folded from the units.
#pragma once

#include "blueprint/memory_plan.h"
#include "blueprint/rank_trace.h"
#include "schedule/lowering/lower.h"

namespace echelon {

/// In actions; both ends belong to it.
struct BufferLifetime {
  BufferKey key;  // of a unit's whole buffers without the bucket: of all of them
  int stage = 0;
  int unit = -1;  // of a unit's whole buffers
  int first = 0, last = 0;
  bool is_owned = false;  // of a unit's buffers: of the owned part alone
};

/// All that lives during some actions of a program: stashes, boundaries, workspace, and whole buffers of units whose
/// parameters or gradients are sharded or converted. Gathered parameters live from their gather to their release; the
/// gradients of one microbatch from open_gradients until they are stored, or converted for their reduction; converted
/// ones from their reduction until they are stored. `rank_of_stage`: of all stages.
[[nodiscard]] std::vector<BufferLifetime> lifetimes_of(const Program& program, const LoweringOptions& options,
                                                       const std::vector<int>& rank_of_stage);

/// Buffers that live as long as the rank: parameters, gradients, optimizer state, constants, the step's batch.
[[nodiscard]] std::vector<PlannedBuffer> persistent_buffers(const ModelPart& part, std::int64_t num_microbatches);

/// Of host memory, by unit: the copies of their state from which checkpoints are written, within
/// checkpoint.snapshot_bytes. None where training waits for checkpoints. Throws Error for a limit that a GPU cannot
/// keep.
[[nodiscard]] std::vector<PlannedBuffer> snapshot_buffers(const ModelPart& part, const CheckpointConfig& config,
                                                          DeviceChoice device);

/// The buffers of these lifetimes.
[[nodiscard]] std::vector<PlannedBuffer> transient_buffers(const std::vector<BufferLifetime>& lifetimes,
                                                           const Program& program, const ModelPart& part,
                                                           const RankTrace& trace);

/// Of one bucket of a unit: gathered_param, unreduced_grad or converted_grad; `is_owned`: of the owned part alone.
[[nodiscard]] std::int64_t bucket_bytes(BufferRole role, bool is_owned, const Bucket& bucket,
                                        const ShardOptions& options);

}  // namespace echelon
