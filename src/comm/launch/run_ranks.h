// Runs the ranks of a run as threads of this process, or as processes of an MPI job with one rank each. The engine
// calls this and depends on neither.
#pragma once

#include "base/error.h"
#include "comm/launch_environment.h"
#include "comm/mesh.h"
#include "spec/config/run_choices.h"

#include <functional>
#include <vector>

namespace echelon {

enum class Transport : std::uint8_t { thread, mpi };
[[nodiscard]] std::string_view name_of(Transport transport);

struct RankPlacement {
  Transport transport = Transport::thread;
  int num_ranks = 1;
  int first_rank_here = 0;    // of this process
  int num_ranks_on_host = 1;  // that share this machine's cores and memory

  /// Rank 0 is in this process, which alone reports on the run.
  [[nodiscard]] bool is_first_process() const { return first_rank_here == 0; }
};

/// backend: comm.backend; automatic is mpi if a launcher started several processes. Throws Error if they are not as
/// many as there are ranks.
[[nodiscard]] RankPlacement place_ranks(CommBackend backend, int num_ranks,
                                        const std::optional<LaunchEnvironment>& launched);
/// The same for the environment of this process.
[[nodiscard]] RankPlacement place_ranks(CommBackend backend, int num_ranks);

/// Of each rank the number of its host, from 0 on. All processes must call it.
[[nodiscard]] std::vector<int> hosts_of_ranks(const RankPlacement& placement);
/// For a process that fails: ends the others of its job, if they may wait for it although it has started no run.
void end_job_before_run(ExitStatus status);

/// Runs body(mesh) on every rank that lives in this process and returns when all have ended. Threads: what a rank
/// throws is thrown again. MPI: it is printed to stderr, and all processes of the job end with its status.
void run_ranks(const MeshShape& shape, const RankPlacement& placement, double timeout_seconds,
               const std::function<void(Mesh&)>& body);

}  // namespace echelon
