// Ranks with an emulated device each, by an emulated NCCL: the conformance suite of the transports, and failures.
#include "comm/conformance.h"
#include "comm/numbers.h"
#include "comm/thread/thread_world.h"
#include "cuda/comm/nccl_mesh.h"
#include "cuda/emulated/runtime.h"
#include "cuda/host_faced_mesh.h"

#include <gmock/gmock.h>

namespace echelon {
namespace {

using conformance::Buffer;
using conformance::line;
using conformance::line_group;
using testing::AllOf;
using testing::HasSubstr;

void run(const MeshShape& shape, const std::function<void(Mesh&)>& body, double timeout_seconds) {
  emulated::set_num_devices(shape.num_ranks());
  run_thread_ranks(shape, {.timeout_seconds = 60}, [&](Mesh& host) {
    cuda::Device device(host.rank());
    cuda::NcclMesh mesh(host, device, timeout_seconds);
    mesh.connect({line_group, {{Axis::pp}}});
    mesh.connect_neighbours(line_group);
    cuda::HostFacedMesh faced(mesh, device);
    body(faced);
  });
  emulated::set_num_devices(1);
}
void run_all(const MeshShape& shape, const std::function<void(Mesh&)>& body) { run(shape, body, 60); }
void run_few(const MeshShape& shape, const std::function<void(Mesh&)>& body) {
  if (const int n = shape.num_ranks(); n == 1 || n == 3 || n == 4) run_all(shape, body);
}

TEST(Nccl, AllReduceAddsInRankOrder) { conformance::all_reduce_adds_in_rank_order(run_few); }
TEST(Nccl, AllReduceTakesTheMaximum) { conformance::all_reduce_takes_the_maximum(run_few); }
TEST(Nccl, AllGatherConcatenates) { conformance::all_gather_concatenates(run_few); }
TEST(Nccl, ReduceScatterLeavesEachRankItsPart) { conformance::reduce_scatter_leaves_each_rank_its_part(run_few); }
TEST(Nccl, BroadcastCopiesTheRoot) { conformance::broadcast_copies_the_root(run_few); }
TEST(Nccl, AllToAllTransposes) { conformance::all_to_all_transposes(run_few); }
TEST(Nccl, TransfersArriveInOrder) { conformance::transfers_arrive_in_order(run_few); }
TEST(Nccl, BarrierWaitsForAll) { conformance::barrier_waits_for_all(run_few); }
TEST(Nccl, ManyOperationsMayBeInFlight) { conformance::many_operations_may_be_in_flight(run_all); }
TEST(Nccl, RanksMayWaitInDifferentOrders) {
  conformance::ranks_may_wait_in_different_orders([](const MeshShape& shape, const auto& body) {
    if (shape.num_ranks() == 4) run_all(shape, body);
  });
}
TEST(Nccl, PollingAloneFinishes) {
  conformance::polling_alone_finishes([](const MeshShape& shape, const auto& body) {
    if (shape.num_ranks() == 2) run_all(shape, body);
  });
}
TEST(Nccl, GroupsAreThoseOfTheMesh) { conformance::groups_are_those_of_the_mesh(run_all); }
TEST(Nccl, TwoRunsGiveTheSameBits) { conformance::two_runs_give_the_same_bits(run_all); }
TEST(Nccl, WrongArgumentsAreRefused) { conformance::wrong_arguments_are_refused(run_all); }

// Each sends and each receives before it sends, whatever the other does first.
TEST(Nccl, NeighboursOfAPipelineMayStartInAnyOrder) {
  std::array<int, num_axes> degrees;
  degrees.fill(1);
  degrees[static_cast<std::size_t>(Axis::pp)] = 3;
  run_all(MeshShape(degrees), [](Mesh& mesh) {
    Comm& comm = mesh.comm({{Axis::pp}});
    const int next = (comm.rank() + 1) % 3, previous = (comm.rank() + 2) % 3;
    Buffer x = conformance::numbers(DType::float32, 100, comm.rank()), y(DType::float32, 100);
    Pending received = comm.receive(y.tensor(), previous);
    Pending sent = comm.send(x.tensor(), next);
    received.wait();
    sent.wait();
    conformance::expect_same(y, conformance::numbers(DType::float32, 100, previous), "around a ring");
  });
}

std::string outcome_of(int n, const std::function<void(Mesh&, Comm&)>& body, double timeout_seconds = 60) {
  try {
    run(
        line(n), [&](Mesh& mesh) { body(mesh, mesh.comm(line_group)); }, timeout_seconds);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void all_reduce(Comm& comm, std::int64_t num_elements) {
  Buffer x(DType::float32, num_elements);
  comm.all_reduce(x.tensor(), ReduceOp::sum).wait();
}

TEST(Nccl, ARankThatThrowsReleasesAllThatWait) {
  for (int round = 0; round < 4; ++round)
    EXPECT_EQ(outcome_of(4,
                         [&](Mesh& mesh, Comm& comm) {
                           all_reduce(comm, 10);
                           if (mesh.rank() == round) throw Error("left in the middle");
                           for (;;) all_reduce(comm, 10);
                         }),
              "rank " + std::to_string(round) + ": left in the middle");
}

TEST(Nccl, ALongWaitNamesTheOperation) {
  const auto miss_one = [](Mesh& mesh, Comm& comm) {
    if (mesh.rank() != 2) all_reduce(comm, 10);
  };
  EXPECT_THAT(outcome_of(4, miss_one, 0.2), AllOf(HasSubstr("not done after 0.2 s (comm.timeout_seconds); rank "),
                                                  HasSubstr("all_reduce(sum) of 10 float32 in group dp_replicate (ranks 0, 1, 2, 3)")));
}

}  // namespace
}  // namespace echelon
