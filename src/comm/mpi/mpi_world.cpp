#include "comm/mpi/mpi_world.h"

#include "comm/mpi/mpi_mesh.h"

#include <algorithm>
#include <cstdio>

namespace echelon {
namespace {

void run_process_rank(MpiMesh& mesh, const std::function<void(Mesh&)>& body) {
  body(mesh);
  // While others continue, this rank takes part: it answers questions about stalls.
  mesh.comm({world_axes}).barrier().wait();
}

}  // namespace

void run_first_mpi_ranks(const MeshShape& shape, const MpiOptions& options, const std::function<void(Mesh&)>& body) {
  MpiProcess& process = MpiProcess::get();
  const std::int64_t run = process.next_run();
  require(shape.num_ranks() <= process.size(), "the mesh has {} ranks, but MPI has {} processes", shape.num_ranks(),
          process.size());
  if (process.rank() >= shape.num_ranks()) return;
  process.wire().read_memory_of(
      [&](int peer) { return options.reads_memory(std::min(process.rank(), peer), std::max(process.rank(), peer)); });
  MpiMesh mesh(process, shape, run, options.timeout_seconds);
  const auto end_job = [&](const char* sentence, ExitStatus status) {
    mesh.end_job(fmt::format("rank {}: {}", process.rank(), sentence), status);
  };
  try {
    run_process_rank(mesh, body);
  } catch (const Error& error) {
    end_job(error.what(), error.status());
  } catch (const std::exception& error) {
    end_job(error.what(), ExitStatus::failure);
  } catch (...) {
    end_job("an exception of unknown type", ExitStatus::failure);
  }
}

void run_mpi_ranks(const MeshShape& shape, const MpiOptions& options, const std::function<void(Mesh&)>& body) {
  const int size = MpiProcess::get().size();
  require(shape.num_ranks() == size,
          "the mesh has {} ranks (the degrees of [parallelism]), but MPI has {} processes (use mpirun -n {})",
          shape.num_ranks(), size, shape.num_ranks());
  run_first_mpi_ranks(shape, options, body);
}

std::vector<int> hosts_of_mpi_ranks() { return MpiProcess::get().hosts(); }

void end_mpi_job_before_run(ExitStatus status) {
  int have_met = 0;
  MPI_Initialized(&have_met);
  if (have_met == 0 || MpiProcess::get().has_run()) return;
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(status));
}

}  // namespace echelon
