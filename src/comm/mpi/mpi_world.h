// Ranks as processes of an MPI job, one each, over as many machines as the launcher (mpirun, srun) was told.
#pragma once

#include "base/error.h"
#include "comm/mesh.h"

#include <functional>
#include <vector>

namespace echelon {

struct MpiOptions {
  double timeout_seconds = 300;  // of one wait
  // Whether two ranks on one machine read each other's memory if the system allows it; otherwise their data go through
  // MPI. The same on all ranks.
  std::function<bool(int, int)> reads_memory = [](int, int) { return true; };
};

/// Runs body(mesh) as this process' rank, of which the shape must have as many as there are processes, and returns when
/// all ranks have ended. If a rank throws, it says why on stderr, and the job ends: all processes exit with its status.
/// So this throws only errors that occur on every process.
void run_mpi_ranks(const MeshShape& shape, const MpiOptions& options, const std::function<void(Mesh&)>& body);

/// Likewise on the first ranks of the job, if there are more than the shape has; on the others it does nothing. All
/// processes must call it.
void run_first_mpi_ranks(const MeshShape& shape, const MpiOptions& options, const std::function<void(Mesh&)>& body);

/// Of each process of the job the number of its host, from 0 on. All processes must call it.
[[nodiscard]] std::vector<int> hosts_of_mpi_ranks();
/// Ends all processes of the job, if they have met in MPI and this one has started no run: the others may wait for it.
void end_mpi_job_before_run(ExitStatus status);

}  // namespace echelon
