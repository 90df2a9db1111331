// Draws a step's timeline with all its lanes as SVG, and as a Chrome trace (JSON) that opens in Perfetto.
#pragma once

#include "schedule/timeline.h"

#include <string>
#include <vector>

namespace echelon {

/// The actions of the timeline's events have the same index.
struct DrawnRank {
  std::string name;
  const Program* program = nullptr;
  std::vector<int> lanes = {};               // by action; 0 computes
  std::vector<std::string> lane_names = {};  // events of one lane never overlap
  // By action: the part of a pass in which its layers communicate; empty: unknown.
  std::vector<double> layers_send_seconds = {};
};

/// A band per rank: its compute, and below it in thin rows its transfers and collectives. Times are seconds.
[[nodiscard]] std::string to_svg(const std::vector<DrawnRank>& ranks, const Timeline& timeline);

/// A process per rank, a thread per lane. Times are seconds.
[[nodiscard]] std::string to_chrome_json(const std::vector<DrawnRank>& ranks, const Timeline& timeline);

}  // namespace echelon
