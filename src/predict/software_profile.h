// What other software than Echelon does with the same layout: a named rewriting of a trace, for runs that were published. `echelon` is the identity.
#pragma once

#include "blueprint/call_trace.h"
#include "predict/overlap.h"
#include "spec/run_config.h"

#include <string>

namespace echelon {

struct SoftwareProfile {
  std::string name = "echelon";
  OverlapRules overlap = {};
};

/// Throws Error naming the nearest.
[[nodiscard]] const SoftwareProfile& software_profile(std::string_view name);

/// What the software computes and sends in the place of `trace`, the trace of `action`.
[[nodiscard]] CallTrace rewritten(const SoftwareProfile& profile, const RunConfig& config, const Action& action, const CallTrace& trace);

}  // namespace echelon
