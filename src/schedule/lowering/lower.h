// Lowering: turns a schedule into the programs that ranks run. Adds batch loading, pipeline transfers, gradient
// reduction, clipping, the update and the gathering of parameters, gives every action its id and writes its
// predecessors down: data edges, resource edges and reuse edges. Order is known here alone; checker, memory plan,
// simulator and engine only read edges.
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

/// Until when gathered parameters stay (ZeRO-3): for the pass that comes next, until the microbatch that they were
/// gathered for has gone back, or for the step.
enum class KeepsGathered : std::uint8_t { for_next_pass, for_backward, for_step };

struct LoweringOptions {
  std::vector<StageShape> stages;   // one per stage
  bool trains = true;               // false: forward only (evaluation)
  bool reduces_gradients = true;    // data axes have more than one rank
  bool gathers_parameters = false;  // after their update: ZeRO-1 and 2
  bool shards_gradients = false;    // ZeRO >= 2: formed in a buffer of their own and reduced for each microbatch
  bool shards_parameters = false;   // ZeRO-3: gathered before they are used
  bool reduces_parts = false;       // a sharded model has replicas (hybrid sharding)
  bool converts_gradients = false;  // they are reduced in another format than their own
  KeepsGathered keeps_gathered = KeepsGathered::for_next_pass;
  bool clips = true;
  bool ties_across_ranks = false;  // the tied weight lies on two different pipeline ranks

  /// What was reduced is not where gradients are kept.
  [[nodiscard]] bool stores_gradients() const { return shards_gradients || converts_gradients; }
};

/// One program per pipeline rank; ranks that differ in other axes run the same one.
[[nodiscard]] std::vector<Program> lower(const Schedule& schedule, const LoweringOptions& options);

/// Proves: each microbatch passes each stage once and in order; sends and receives match in order per (source,
/// destination); collectives across pipeline ranks come in one order; no cycle, hence no deadlock with no buffering of
/// sends at all; every buffer reader runs after its writer. Returns one sentence per fault.
[[nodiscard]] std::vector<std::string> check(const std::vector<Program>& programs, const Schedule& schedule,
                                             const LoweringOptions& options);

}  // namespace echelon
