// On which cores a thread's team computes.
#pragma once

#include <vector>

namespace echelon {

/// From its next job on, each worker of the calling thread's team has one of these cores (numbers of processors) for
/// itself, and another one than the caller is on at that moment. Left to itself, the system may wake a worker on the
/// caller's core and leave another one idle. With fewer cores than threads it decides.
void spread_team_of_this_thread(std::vector<std::vector<int>> cores);

}  // namespace echelon
