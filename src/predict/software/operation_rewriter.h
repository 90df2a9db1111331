// What the operations and messages of one action are in other software: which kernels it fuses or launches apart, what
// it casts, keeps and recomputes.
#pragma once

#include "blueprint/unit_trace.h"
#include "predict/software/software_profile.h"

namespace echelon {

/// `trace`: of the action, as Echelon's own code runs it. Waits refer to what is then started.
[[nodiscard]] CallTrace rewritten_operations(const SoftwareProfile& profile, const RunConfig& config,
                                             const Action& action, const CallTrace& trace);

}  // namespace echelon
