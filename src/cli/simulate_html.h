// The page that `echelon simulate --html` writes.
#pragma once

#include "cli/simulate_output.h"
#include "report/html_report.h"

#include <vector>

namespace echelon {

/// By name, in seconds; adds up to the step.
[[nodiscard]] std::vector<HtmlBars::Part> page_parts(const StepParts& parts);

[[nodiscard]] HtmlReport simulation_page(const SimulatedRun& run);

}  // namespace echelon
