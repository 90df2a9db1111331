// One part of `check`: what the actions of one rank must wait for. It is derived independently of lowering: lowering
// asks which action follows a writer, this asks what a reader needs.
#pragma once

#include "schedule/lowering/lower.h"

#include <string>
#include <vector>

namespace echelon {

/// The actions (kind, stage, microbatch, unit) that the rank's program must hold, each once; in no order. Without the
/// gathers of ZeRO-3 and their releases.
[[nodiscard]] std::vector<Action> expected_actions(int rank, const Schedule& schedule, const LoweringOptions& options);

/// One sentence for each reader that does not wait for its writer, and for each action that is still pending at the
/// end. Expects `expected_actions`.
[[nodiscard]] std::vector<std::string> check_edges(int rank, const Program& program, const Schedule& schedule,
                                                   const LoweringOptions& options);

}  // namespace echelon
