// A step of thread ranks that share the cores of one host, rank by rank as the engine runs it (comm/thread). A rank
// computes while it has one of as many permits as there are cores, and hands it to the next rank in the queue when it
// waits. A rank that waits for a collective does its share of copying and summing. Idle cores help those that compute
// (base/lending.h).
#pragma once

#include "blueprint/blueprint.h"
#include "predict/host/rank_pieces.h"
#include "predict/step/step_parts.h"
#include "schedule/timeline.h"
#include "spec/machine/host_spec.h"

namespace echelon {

/// A step after the first.
struct HostStep {
  double seconds = 0;
  double busy_core_seconds = 0;       // of all cores; the rest of `seconds` times their number is idle
  std::vector<StepParts> parts = {};  // by rank; the wait of a rank for a core is part of waiting
  Timeline timeline = {};             // of the rank of every pipeline rank whose other coordinates are 0
};

/// `kind`: that trains. Throws Error for matmuls in float8,
/// which CPUs do for comparison alone, and Failure if the programs deadlock.
[[nodiscard]] HostStep host_step(const Blueprint& blueprint, const HostSpec& host, const HostLoad& load = {},
                                 ProgramKind kind = ProgramKind::training);

/// Ranks that are processes of this host, each with cores of its own: none helps another, and an operation takes what
/// it was measured to take once all have come. Throws Error if there are more of them than cores, or if the host has no
/// collectives of processes.
[[nodiscard]] HostStep host_step_of_processes(const Blueprint& blueprint, const HostSpec& host,
                                              const HostLoad& load = {}, ProgramKind kind = ProgramKind::training);

/// Until all ranks have done their pieces, each with `num_threads` threads.
[[nodiscard]] double seconds_of_pieces(const RankPieces& pieces, const HostTime& time, int num_threads);

}  // namespace echelon
