// The page that `echelon simulate --html` writes.
#pragma once

#include "cli/simulate_output.h"
#include "report/html_report.h"

namespace echelon {

[[nodiscard]] HtmlReport simulation_page(const SimulatedRun& run);

}  // namespace echelon
