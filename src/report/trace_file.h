// A rank's measured steps as a Chrome trace (JSON): opens in Perfetto. pid = rank, tid = lane; times in microseconds.
#pragma once

#include "report/step_trace.h"

#include <string>

namespace echelon {

/// One process per rank, one thread per lane and one for the steps; with experts over ranks one for their rows on the
/// way. Asynchronous actions have an asynchronous event from start to end.
[[nodiscard]] std::string to_chrome_json(const std::vector<StepTrace>& steps, const Program& program);

}  // namespace echelon
