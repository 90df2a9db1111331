// Transfers arrive while the ranks compute, without a call from them.
#include "comm/mpi/mpi_world.h"
#include "comm/mpi/processes.h"
#include "comm/numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace echelon {
namespace {

// More than MPI sends before it hears from the receiver.
constexpr std::int64_t num_values = 1 << 20;
constexpr std::chrono::seconds long_enough(60);

bool becomes(double& x, double value) {
  const auto end = std::chrono::steady_clock::now() + long_enough;
  while (std::chrono::steady_clock::now() < end) {
    if (std::atomic_ref<double>(x).load() == value) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

void exchange_while_ranks_compute(bool reads_memory) {
  if (num_processes() < 2) GTEST_SKIP() << "needs two processes";
  const MpiOptions options = {.timeout_seconds = 120, .reads_memory = [&](int, int) { return reads_memory; }};
  run_first_mpi_ranks(conformance::line(2), options, [](Mesh& mesh) {
    std::vector<double> sent(num_values, mesh.rank() + 1.0), received(num_values, 0.0);
    const auto as_tensor = [](std::vector<double>& x) {
      return Tensor{reinterpret_cast<std::byte*>(x.data()), DType::float64, {num_values}};
    };
    Comm& comm = mesh.comm(conformance::line_group);
    const int peer = 1 - mesh.rank();
    Pending send = comm.send(as_tensor(sent), peer), receive = comm.receive(as_tensor(received), peer);
    EXPECT_TRUE(becomes(received.back(), peer + 1.0)) << "rank " << mesh.rank();
    receive.wait();
    send.wait();
    EXPECT_TRUE(std::all_of(received.begin(), received.end(), [&](double x) { return x == peer + 1.0; }));
  });
}

TEST(MpiBackground, AdvancesMessages) { exchange_while_ranks_compute(false); }
TEST(MpiBackground, AdvancesReadsOfMemory) { exchange_while_ranks_compute(true); }

}  // namespace
}  // namespace echelon
