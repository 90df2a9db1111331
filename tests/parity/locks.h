// The locks between prediction and run: what a rank used, multiplied and sent equals what its blueprint said, to the byte.
#pragma once

#include "engine/rank_run.h"
#include "ops/cpu/cpu_ops.h"

namespace echelon::testing {

/// How often each program was run.
struct ProgramRuns {
  std::int64_t training = 0;
  std::int64_t evaluation = 0;
};

/// Memory used per planned buffer and per category == the plan; products counted at the BLAS call and bytes counted in the transport == the trace.
void expect_locks_hold(RankRun& run, const Mesh& mesh, const CpuOps& ops, ProgramRuns runs);

}  // namespace echelon::testing
