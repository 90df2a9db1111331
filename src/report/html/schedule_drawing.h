// Draws a timed schedule as SVG, and as a Chrome trace (JSON) that opens in Perfetto.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timeline.h"

#include <string>

namespace echelon {

/// A row per rank; forwards are blue, gradients of the input (and fused backwards) green, those of the weights orange,
/// lighter on a rank's later stages.
[[nodiscard]] std::string to_svg(const Schedule& schedule, const Timeline& timeline);

/// One process, a thread per rank, an event per pass. The timeline's times are read as milliseconds.
[[nodiscard]] std::string to_chrome_json(const Schedule& schedule, const Timeline& timeline);

}  // namespace echelon
