// The locks between prediction and run: what a rank used, multiplied and sent equals what its blueprint said, to the
// byte.
#pragma once

#include "engine/layout_run.h"
#include "ops/cpu/cpu_ops.h"

namespace echelon::testing {

/// How often each program was run.
struct ProgramRuns {
  std::int64_t training = 0;
  std::int64_t evaluation = 0;
};

/// Memory used per planned buffer and per category == the plan; products counted at the BLAS call and bytes counted in
/// the transport == the trace. Products are counted where the rank computes with ops/cpu and nothing between.
void expect_locks_hold(const RankView& rank, ProgramRuns runs);

/// Pairs (query, key) of all heads that these runs computed, by the trace and the documents of their batches.
[[nodiscard]] AttentionPairs pairs_of(RankRun& run, ProgramRuns runs);

}  // namespace echelon::testing
