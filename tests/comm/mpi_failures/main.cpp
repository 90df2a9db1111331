// Four processes of which some fail in the way that the argument names; tests/comm/mpi_failure_test.cpp looks at how
// the job ends.
#include "comm/mpi/mpi_world.h"
#include "comm/numbers.h"
#include "comm/thread/thread_world.h"

#include <csignal>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

namespace echelon {
namespace {

using conformance::Buffer;
using conformance::line;
using conformance::line_group;

void all_reduce(Comm& comm, std::int64_t num_elements, DType dtype = DType::float32) {
  Buffer x(dtype, num_elements);
  comm.all_reduce(x.tensor(), ReduceOp::sum).wait();
}

/// Rank 3 waits for 2, which waits for 1, which waits for 0, which does what it does.
void wait_in_a_chain(Comm& comm, const std::function<void()>& rank_0) {
  if (comm.rank() == 0) return rank_0();
  Buffer x(DType::float32, 5);
  comm.receive(x.tensor(), comm.rank() - 1).wait();
}

/// Not for one signal alone: whoever looks after a machine may send SIGCONT to all.
void stop() {
  for (;;) std::raise(SIGSTOP);
}

// comm.timeout_seconds and what the ranks do.
struct Mode {
  double timeout_seconds;
  std::function<void(Mesh&, Comm&)> body;
};

std::map<std::string, Mode> modes() {
  return {
      {"error",
       {60,
        [](Mesh& mesh, Comm& comm) {
          if (mesh.rank() == 3) throw Error("training.steps = 0 is below 1");
          all_reduce(comm, 10);
        }}},
      {"foreign",
       {60,
        [](Mesh& mesh, Comm& comm) {
          if (mesh.rank() == 1) throw std::runtime_error("of the\nlibrary");
          for (;;) mesh.poll();
          (void)comm;
        }}},
      {"abort",
       {60,
        [](Mesh& mesh, Comm& comm) {
          if (mesh.rank() == 2) mesh.abort("rank 2 lost its disk");
          all_reduce(comm, 100'000);
        }}},
      {"killed",
       {60,
        [](Mesh& mesh, Comm& comm) {
          if (mesh.rank() == 3) std::raise(SIGKILL);
          all_reduce(comm, 10);
        }}},
      {"stopped", {4, [](Mesh&, Comm& comm) { wait_in_a_chain(comm, stop); }}},
      {"asleep",
       {4, [](Mesh&,
              Comm& comm) { wait_in_a_chain(comm, [] { std::this_thread::sleep_for(std::chrono::seconds(60)); }); }}},
      {"circle",
       {4,
        [](Mesh&, Comm& comm) {
          Buffer x(DType::float32, 5);
          comm.receive(x.tensor(), (comm.rank() + 1) % comm.size()).wait();
        }}},
      {"kinds", {60, [](Mesh& mesh, Comm& comm) { mesh.rank() == 1 ? comm.barrier().wait() : all_reduce(comm, 10); }}},
      {"sizes", {60, [](Mesh& mesh, Comm& comm) { all_reduce(comm, mesh.rank() == 1 ? 100'001 : 100'000); }}},
      {"dtypes",
       {60, [](Mesh& mesh, Comm& comm) { all_reduce(comm, 10, mesh.rank() == 2 ? DType::int32 : DType::float32); }}},
      {"roots",
       {60, [](Mesh& mesh,
               Comm& comm) { comm.broadcast(Buffer(DType::float32, 4).tensor(), mesh.rank() == 0 ? 0 : 1).wait(); }}},
      {"transfers",
       {60,
        [](Mesh& mesh, Comm& comm) {
          Buffer x(DType::float32, mesh.rank() == 0 ? 5 : 6);
          if (mesh.rank() < 2) (mesh.rank() == 0 ? comm.send(x.tensor(), 1) : comm.receive(x.tensor(), 0)).wait();
        }}},
      {"left_out",
       {60,
        [](Mesh& mesh, Comm& comm) {
          if (mesh.rank() != 2) all_reduce(comm, 10);
        }}},
      // The second thread rank of the process with rank 2 sleeps; all others return or wait.
      {"thread_asleep",
       {60,
        [](Mesh& mesh, Comm& comm) {
          if (mesh.rank() == 2)
            run_thread_ranks(line(2), {.timeout_seconds = 0.5, .return_seconds = 0.5}, [](Mesh& thread) {
              if (thread.rank() == 1) std::this_thread::sleep_for(std::chrono::minutes(2));
              all_reduce(thread.comm(line_group), 10);
            });
          all_reduce(comm, 10);
        }}},
      {"dropped",
       {60,
        [](Mesh& mesh, Comm& comm) {
          Buffer x(DType::float32, 10);
          Pending reduced = comm.all_reduce(x.tensor(), ReduceOp::sum);
          if (mesh.rank() != 1) reduced.wait();
        }}},
  };
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  const echelon::Mode mode = echelon::modes().at(argc > 1 ? argv[1] : "");
  echelon::run_mpi_ranks(echelon::conformance::line(4), {.timeout_seconds = mode.timeout_seconds},
                         [&](echelon::Mesh& mesh) {
                           echelon::Comm& comm = mesh.comm(echelon::conformance::line_group);
                           comm.barrier().wait();
                           mode.body(mesh, comm);
                         });
}
