// One part of `check`, for ZeRO-3: no pass runs without its parameters, and nothing stays gathered for nothing.
#pragma once

#include "schedule/lowering/lower.h"

#include <string>
#include <vector>

namespace echelon {

/// One sentence for each pass whose parameters are not gathered, or that does not wait for them; for each gather that
/// comes too late to overlap with a pass, or while there is a copy; for each release that comes too early; and for
/// whatever is gathered during a pass that neither needs it nor is allowed to keep it.
[[nodiscard]] std::vector<std::string> check_parameters(int rank, const Program& program,
                                                        const LoweringOptions& options);

}  // namespace echelon
