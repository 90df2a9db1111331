// Draws a step's timeline with all its lanes as SVG, and as a Chrome trace (JSON) that opens in Perfetto.
#pragma once

#include "schedule/timeline.h"

#include <string>
#include <vector>

namespace echelon {

/// What the layers of a pass send and receive, but for rows of experts (Timeline::exchanges), as fractions of its time.
struct DrawnMessage {
  std::string name;  // "all_to_all over dp_shard"
  double start = 0, end = 0;
};

/// The actions of the timeline's events have the same index.
struct DrawnRank {
  std::string name;
  const Program* program = nullptr;
  std::vector<int> lanes = {};               // by action; 0 computes
  std::vector<std::string> lane_names = {};  // events of one lane never overlap
  // By action: the part of a pass in which its layers communicate; empty: unknown.
  std::vector<double> layers_send_seconds = {};
  std::vector<std::vector<DrawnMessage>> layer_messages = {};  // by action, or empty; they have a lane of their own
};

/// A band per rank: its compute, and below it in thin rows the exchange of experts, if there is one, what else layers
/// send, transfers and collectives. Times are seconds.
[[nodiscard]] std::string to_svg(const std::vector<DrawnRank>& ranks, const Timeline& timeline);

/// A process per rank, a thread per lane, and next to compute one for the exchange of experts and one for what else
/// layers send. Times are seconds.
[[nodiscard]] std::string to_chrome_json(const std::vector<DrawnRank>& ranks, const Timeline& timeline);

}  // namespace echelon
