// Collectives of float32 between the processes of mpirun, in turns: Echelon reading the memory of the other processes,
// Echelon by MPI's messages alone, and the MPI library's own. The time of a call is the slowest rank's, the median of
// the rounds.
//
//   mpirun -n 2 build/release/bench_processes [rounds [bytes]]
#include "base/median.h"
#include "comm/mpi/mpi_world.h"
#include "tensor/arena.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

namespace echelon {
namespace {

using Clock = std::chrono::steady_clock;

/// `full` is the buffer whose size is told, `part` one n-th of it.
struct Buffers {
  Tensor full, part;
};

struct Collective {
  const char* name;
  std::function<void(Comm&, const Buffers&)> echelon;
  std::function<void(const Buffers&)> mpi;
};

std::vector<Collective> collectives() {
  const auto count = [](const Tensor& x) { return static_cast<int>(x.num_elements()); };
  return {
      {"all_reduce", [](Comm& comm, const Buffers& x) { comm.all_reduce(x.full, ReduceOp::sum).wait(); },
       [count](const Buffers& x) {
         MPI_Allreduce(MPI_IN_PLACE, x.full.data, count(x.full), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
       }},
      {"reduce_scatter",
       [](Comm& comm, const Buffers& x) { comm.reduce_scatter(x.part, x.full, ReduceOp::sum).wait(); },
       [count](const Buffers& x) {
         MPI_Reduce_scatter_block(x.full.data, x.part.data, count(x.part), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
       }},
      {"all_gather", [](Comm& comm, const Buffers& x) { comm.all_gather(x.full, x.part).wait(); },
       [count](const Buffers& x) {
         MPI_Allgather(x.part.data, count(x.part), MPI_FLOAT, x.full.data, count(x.part), MPI_FLOAT, MPI_COMM_WORLD);
       }},
  };
}

/// Milliseconds of one of many calls, on the slowest rank; one call comes before.
double timed(int num_calls, const std::function<void()>& call) {
  call();
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = Clock::now();
  for (int i = 0; i < num_calls; ++i) call();
  const double own = std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / num_calls;
  double most = 0;
  MPI_Allreduce(&own, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

void compare(const Collective& collective, int n, std::int64_t num_bytes, int num_rounds, bool tells) {
  const std::int64_t part = num_bytes / static_cast<std::int64_t>(sizeof(float)) / n, most_bytes = aligned(num_bytes);
  const Arena arena(2 * most_bytes);
  const Buffers x = {arena.tensor(0, DType::float32, {part * n}), arena.tensor(most_bytes, DType::float32, {part})};
  std::memset(arena.tensor(0, DType::float32, {arena.num_bytes() / 4}).data, 0,
              static_cast<std::size_t>(arena.num_bytes()));
  const int num_calls = static_cast<int>(std::clamp<std::int64_t>((1 << 20) / num_bytes, 1, 200));
  std::array<std::vector<double>, 3> times;
  for (int round = 0; round < num_rounds; ++round) {
    for (const bool reads_memory : {true, false})
      run_mpi_ranks(MeshShape({{Axis::dp_replicate, n}}), {.reads_memory = [=](int, int) { return reads_memory; }},
                    [&](Mesh& mesh) {
                      Comm& comm = mesh.comm({{Axis::dp_replicate}});
                      times[reads_memory ? 0 : 1].push_back(timed(num_calls, [&] { collective.echelon(comm, x); }));
                    });
    times[2].push_back(timed(num_calls, [&] { collective.mpi(x); }));
  }
  const double memory = median(times[0]), messages = median(times[1]), mpi = median(times[2]);
  if (tells)
    fmt::print("{:<15} {:>9} {:>10.4f} {:>10.4f} {:>10.4f} {:>8.2f}\n", collective.name, num_bytes, memory, messages,
               mpi, mpi / memory);
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  using namespace echelon;
  const int num_rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  const std::int64_t only = argc > 2 ? std::atoll(argv[2]) : 0;
  int rank = 0, n = 1;
  run_first_mpi_ranks(MeshShape(), {}, [](Mesh&) {});  // initialises MPI
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  if (rank == 0)
    fmt::print("{} processes, ms {:>11} {:>10} {:>10} {:>10} {:>8}\n", n, "bytes", "memory", "messages", "MPI's own",
               "ratio");
  for (const Collective& collective : collectives())
    for (std::int64_t num_bytes = 1 << 10; num_bytes <= 64 << 20; num_bytes *= 4)
      if (only == 0 || only == num_bytes) compare(collective, n, num_bytes, num_rounds, rank == 0);
}
