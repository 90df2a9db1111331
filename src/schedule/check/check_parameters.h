// One part of `check`, for ZeRO-3: no pass runs without its parameters, and no unit stays gathered without a use.
#pragma once

#include "schedule/lowering/lower.h"

#include <string>
#include <vector>

namespace echelon {

/// Returns one sentence per fault. A pass has parameters that are not gathered, or does not wait for them. A gather is
/// too late to overlap with a pass, or repeats one. A release is too early. A unit is gathered during a pass that
/// neither needs it nor may keep it.
[[nodiscard]] std::vector<std::string> check_parameters(int rank, const Program& program,
                                                        const LoweringOptions& options);

}  // namespace echelon
