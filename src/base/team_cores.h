// Binds a thread's team to cores.
#pragma once

#include <vector>

namespace echelon {

/// From its next job on, each worker of the calling thread's team has one of these cores (hardware thread ids) for
/// itself, never the caller's current core. Without this, the system may wake a worker on the caller's core and leave
/// another core idle. With fewer cores than threads, the system places workers.
void spread_team_of_this_thread(std::vector<std::vector<int>> cores);

}  // namespace echelon
