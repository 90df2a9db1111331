// Replaces comm/mpi where MPI was not installed when Echelon was built.
#include "comm/mpi/mpi_world.h"

namespace echelon {

void run_first_mpi_ranks(const MeshShape& /*shape*/, const MpiOptions& /*options*/,
                         const std::function<void(Mesh&)>& /*body*/) {
  throw Error(
      "comm.backend = mpi: this echelon was built without MPI; install libopenmpi-dev and rebuild (or use comm.backend "
      "= thread)");
}

void run_mpi_ranks(const MeshShape& shape, const MpiOptions& options, const std::function<void(Mesh&)>& body) {
  run_first_mpi_ranks(shape, options, body);
}

std::vector<int> hosts_of_mpi_ranks() { return {0}; }

void end_mpi_job_before_run(ExitStatus /*status*/) {}

}  // namespace echelon
