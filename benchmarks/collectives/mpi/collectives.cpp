// The same collectives by the MPI library, one process per rank: mpirun -n 2 bench_collectives_mpi [rounds]. In place
// and not; whichever is faster counts.
#include "../cases.h"

#include <mpi.h>

#include <cstdlib>

namespace echelon::collectives {
namespace {

void barrier() { MPI_Barrier(MPI_COMM_WORLD); }

void maximum(std::array<double, 2>& values) {
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

void measure(std::int64_t bytes, int rounds) {
  int n = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int iterations = num_iterations(bytes, n), count = static_cast<int>(num_floats(bytes, n)), part = count / n;
  std::vector<float> full(static_cast<std::size_t>(count), 1e-20F), other(full),
      shard(static_cast<std::size_t>(part), 1e-20F);
  Series all_reduce = {"all_reduce", "openmpi", n, bytes, {}}, in_place = all_reduce,
         reduce_scatter = {"reduce_scatter", "openmpi", n, bytes, {}},
         all_gather = {"all_gather", "openmpi", n, bytes, {}}, all_to_all = {"all_to_all", "openmpi", n, bytes, {}};
  in_place.who = "openmpi_in_place";
  for (int round = -1; round < rounds; ++round) {
    const double reduced = seconds_per_call(iterations, barrier, maximum, [&] {
      MPI_Allreduce(other.data(), full.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    const double within = seconds_per_call(iterations, barrier, maximum, [&] {
      MPI_Allreduce(MPI_IN_PLACE, full.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    const double scattered = seconds_per_call(iterations, barrier, maximum, [&] {
      MPI_Reduce_scatter_block(full.data(), shard.data(), part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    const double gathered = seconds_per_call(iterations, barrier, maximum, [&] {
      MPI_Allgather(shard.data(), part, MPI_FLOAT, full.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
    });
    const double exchanged = seconds_per_call(iterations, barrier, maximum, [&] {
      MPI_Alltoall(full.data(), part, MPI_FLOAT, other.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
    });
    if (round < 0) continue;
    all_reduce.seconds.push_back(reduced);
    in_place.seconds.push_back(within);
    reduce_scatter.seconds.push_back(scattered);
    all_gather.seconds.push_back(gathered);
    all_to_all.seconds.push_back(exchanged);
  }
  if (rank != 0) return;
  for (Series* s : {&all_reduce, &in_place, &reduce_scatter, &all_gather, &all_to_all}) s->print();
  std::fflush(stdout);
}

}  // namespace
}  // namespace echelon::collectives

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  for (const std::int64_t bytes : echelon::collectives::sizes)
    echelon::collectives::measure(bytes, argc > 1 ? std::atoi(argv[1]) : 7);
  MPI_Finalize();
}
