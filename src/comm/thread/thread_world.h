// Ranks as threads of one process: the default transport, which needs no installation and no launcher. There may be far
// more ranks than cores.
#pragma once

#include "comm/mesh.h"

#include <cstddef>
#include <functional>

namespace echelon {

struct ThreadOptions {
  int compute_permits = 0;       // ranks that may compute at a time; 0: as many as there are cores
  double timeout_seconds = 300;  // of one wait
  double return_seconds = 5;     // that a rank needs to return after it has heard of an abort
};

inline constexpr int max_thread_ranks = 4096;
/// Throws Error if there are more ranks than one process takes.
void require_threads_possible(int num_ranks);

/// Runs body(mesh) on every rank of the shape, each a thread, and returns when all have ended. A rank holds a compute
/// permit except while it waits in Comm. If a rank throws, all others are aborted, and the first failure is thrown
/// again as an Error with its status: "rank 17: ...". A rank that does not return within timeout_seconds and
/// return_seconds is named on stderr, and the process ends. In `body`, a buffer must outlive the Pending that it was
/// given to, also when an exception unwinds.
void run_thread_ranks(const MeshShape& shape, const ThreadOptions& options, const std::function<void(Mesh&)>& body);

}  // namespace echelon
