// The page that `echelon simulate --html` writes.
#pragma once

#include "pages/simulate_output.h"
#include "report/html/html_report.h"

#include <vector>

namespace echelon {

/// By name, in seconds; adds up to the step.
[[nodiscard]] std::vector<HtmlBars::Segment> page_segments(const StepParts& parts);

[[nodiscard]] HtmlReport simulation_page(const SimulatedRun& run);

}  // namespace echelon
