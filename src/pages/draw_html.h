// The page that `echelon draw --html` writes.
#pragma once

#include "report/html/html_report.h"
#include "schedule/simulation/rates.h"

#include <string>
#include <vector>

namespace echelon {

struct DrawnSchedule {
  std::string name;
  const Schedule& schedule;
  const Timeline& timeline;          // milliseconds
  const std::vector<double>& peaks;  // microbatches in flight, by rank
  double cost_ms = 0;
  PassTimes times = {};
};

[[nodiscard]] HtmlReport schedule_page(const DrawnSchedule& drawn);

}  // namespace echelon
