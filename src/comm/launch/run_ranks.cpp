#include "comm/launch/run_ranks.h"

#include "base/text/counted.h"
#include "comm/mpi/mpi_world.h"
#include "comm/thread/thread_world.h"

namespace echelon {
namespace {

RankPlacement place_processes(int num_ranks, const LaunchEnvironment& launched) {
  require_mpi_possible(launched);
  require(launched.size == num_ranks,
          "the mesh has {} (the degrees of [parallelism] multiplied), but {} started {} processes (use {} of them)",
          counted(num_ranks, "rank"), name_of(launched.source), launched.size, num_ranks);
  return {.transport = Transport::mpi,
          .num_ranks = num_ranks,
          .first_rank_here = launched.rank,
          .num_ranks_on_host = launched.local_size.value_or(launched.size)};
}

}  // namespace

std::string_view name_of(Transport transport) {
  switch (transport) {
    case Transport::thread: return "thread";
    case Transport::mpi: return "mpi";
  }
  return "?";
}

RankPlacement place_ranks(CommBackend backend, int num_ranks, const std::optional<LaunchEnvironment>& launched) {
  const bool are_several = launched && launched->size > 1;
  require(backend != CommBackend::thread || !are_several,
          "comm.backend = thread, but {} started {} processes, each of which would do the whole run (use mpi)",
          launched ? name_of(launched->source) : "", launched ? launched->size : 1);
  if (backend == CommBackend::mpi) {
    require(launched || num_ranks == 1,
            "comm.backend = mpi needs a process per rank, but this one was started alone (use mpirun -n {}, or thread)",
            num_ranks);
    return place_processes(num_ranks, launched.value_or(LaunchEnvironment()));
  }
  if (are_several) return place_processes(num_ranks, *launched);
  require_threads_possible(num_ranks);
  return {.transport = Transport::thread, .num_ranks = num_ranks, .first_rank_here = 0, .num_ranks_on_host = num_ranks};
}

RankPlacement place_ranks(CommBackend backend, int num_ranks) {
  return place_ranks(backend, num_ranks, launch_environment());
}

std::vector<int> hosts_of_ranks(const RankPlacement& placement) {
  if (placement.transport == Transport::mpi) return hosts_of_mpi_ranks();
  return std::vector<int>(static_cast<std::size_t>(placement.num_ranks), 0);
}

void end_job_before_run(ExitStatus status) { end_mpi_job_before_run(status); }

void run_ranks(const MeshShape& shape, const RankPlacement& placement, double timeout_seconds,
               const std::function<void(Mesh&)>& body) {
  switch (placement.transport) {
    case Transport::thread: return run_thread_ranks(shape, {.timeout_seconds = timeout_seconds}, body);
    case Transport::mpi: return run_mpi_ranks(shape, {.timeout_seconds = timeout_seconds}, body);
  }
}

}  // namespace echelon
