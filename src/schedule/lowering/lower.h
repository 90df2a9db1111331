// Lowering: turns a schedule into the programs that ranks run. Adds batch loading, pipeline transfers, gradient
// reduction, clipping, the update and the gathering of parameters, gives every action its id, and records its
// predecessors: data edges, resource edges and reuse edges. The order is defined only here; checker, memory plan,
// simulator and engine read the edges.
#pragma once

#include "schedule/schedule.h"

#include <vector>

namespace echelon {

/// What lowering must know of a stage.
struct StageShape {
  int num_units = 1;
  // As unit `num_units`: its copy, or the rank's only one if the other stage borrows it.
  bool has_tied_weight = false;
  bool borrows_tied_weight = false;      // of the first stage, on the same rank
  std::vector<bool> unit_sums_replicas;  // [num_units + 1]: the unit has gradients that are partial over tp
};

/// How long gathered parameters stay (ZeRO-3), if none of the next `prefetch_depth` passes needs them: no longer, until
/// the backward pass of their microbatch, or for the step.
enum class KeepsGathered : std::uint8_t { for_next_pass, for_backward, for_step };

struct LoweringOptions {
  std::vector<StageShape> stages;   // one per stage
  bool trains = true;               // false: forward only (evaluation)
  bool takes_snapshot = false;      // of the state, before it is updated
  bool reduces_gradients = true;    // data axes have more than one rank
  bool gathers_parameters = false;  // after their update: ZeRO-1 and 2
  bool shards_gradients = false;    // ZeRO >= 2: computed in a separate buffer and reduced for each microbatch
  bool shards_parameters = false;   // ZeRO-3: gathered before they are used
  bool reduces_parts = false;       // a sharded model has replicas (hybrid sharding)
  bool converts_gradients = false;  // they are reduced in another format than their own
  KeepsGathered keeps_gathered = KeepsGathered::for_next_pass;
  int prefetch_depth = 1;  // passes of units from a gather to the first pass that needs it
  bool clips = true;
  bool backward_reads_count = false;  // the losses of routers are divided by what clipping multiplies them with
  bool ties_across_ranks = false;     // the tied weight is on two different pipeline ranks

  /// What was reduced is not where gradients are kept.
  [[nodiscard]] bool stores_gradients() const { return shards_gradients || converts_gradients; }
};

/// One program per pipeline rank; ranks that differ in other axes run the same one.
[[nodiscard]] std::vector<Program> lower(const Schedule& schedule, const LoweringOptions& options);

/// Proves that each microbatch passes each stage once and in order. Sends and receives match in order per (source,
/// destination). Collectives across pipeline ranks are in one order. The graph has no cycle, so there is no deadlock
/// even if no send is buffered. Every reader of a buffer runs after its writer. Returns one sentence per fault.
[[nodiscard]] std::vector<std::string> check(const std::vector<Program>& programs, const Schedule& schedule,
                                             const LoweringOptions& options);

}  // namespace echelon
