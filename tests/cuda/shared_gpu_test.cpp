// Thread ranks that share a GPU: the conformance suite of the transports, and failures, on the emulated device.
#include "comm/conformance.h"
#include "comm/numbers.h"
#include "comm/thread/thread_world.h"
#include "cuda/comm/shared_carrier.h"
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
  run_thread_ranks(shape, {.timeout_seconds = timeout_seconds}, [&](Mesh& host) {
    cuda::Device device(0);
    cuda::SharedCarrier carrier(device);
    const std::unique_ptr<Mesh> mesh = host.carried_by(carrier);
    cuda::HostFacedMesh faced(*mesh, device);
    body(faced);
  });
}
void run_all(const MeshShape& shape, const std::function<void(Mesh&)>& body) { run(shape, body, 60); }

/// Emulated kernels are slow: where the suite tries 1 to 9 ranks, a few will do.
void run_few(const MeshShape& shape, const std::function<void(Mesh&)>& body) {
  if (const int n = shape.num_ranks(); n == 1 || n == 3 || n == 4) run_all(shape, body);
}

TEST(SharedGpu, AllReduceAddsInRankOrder) { conformance::all_reduce_adds_in_rank_order(run_few); }
TEST(SharedGpu, AllReduceTakesTheMaximum) { conformance::all_reduce_takes_the_maximum(run_few); }
TEST(SharedGpu, AllGatherConcatenates) { conformance::all_gather_concatenates(run_few); }
TEST(SharedGpu, ReduceScatterLeavesEachRankItsPart) { conformance::reduce_scatter_leaves_each_rank_its_part(run_few); }
TEST(SharedGpu, BroadcastCopiesTheRoot) { conformance::broadcast_copies_the_root(run_few); }
TEST(SharedGpu, AllToAllTransposes) { conformance::all_to_all_transposes(run_few); }
TEST(SharedGpu, TransfersArriveInOrder) { conformance::transfers_arrive_in_order(run_few); }
TEST(SharedGpu, BarrierWaitsForAll) { conformance::barrier_waits_for_all(run_few); }
TEST(SharedGpu, ManyOperationsMayBeInFlight) { conformance::many_operations_may_be_in_flight(run_few); }
TEST(SharedGpu, RanksMayWaitInDifferentOrders) {
  conformance::ranks_may_wait_in_different_orders([](const MeshShape& shape, const auto& body) {
    if (shape.num_ranks() == 4) run_all(shape, body);
  });
}
TEST(SharedGpu, PollingAloneFinishes) {
  conformance::polling_alone_finishes([](const MeshShape& shape, const auto& body) {
    if (shape.num_ranks() == 2) run_all(shape, body);
  });
}
TEST(SharedGpu, GroupsAreThoseOfTheMesh) { conformance::groups_are_those_of_the_mesh(run_all); }
TEST(SharedGpu, TwoRunsGiveTheSameBits) { conformance::two_runs_give_the_same_bits(run_all); }
TEST(SharedGpu, WrongArgumentsAreRefused) { conformance::wrong_arguments_are_refused(run_all); }

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

TEST(SharedGpu, ARankThatThrowsReleasesAllThatWait) {
  for (int round = 0; round < 5; ++round)
    EXPECT_EQ(outcome_of(4,
                         [&](Mesh& mesh, Comm& comm) {
                           std::vector<Buffer> x(6, Buffer(DType::float32, 5000));
                           std::vector<Pending> pending;
                           for (Buffer& buffer : x) pending.push_back(comm.all_reduce(buffer.tensor(), ReduceOp::sum));
                           pending[static_cast<std::size_t>(mesh.rank())].wait();
                           if (mesh.rank() == round % 4) throw Error("left in the middle");
                           for (Pending& operation : pending) operation.wait();
                         }),
              "rank " + std::to_string(round % 4) + ": left in the middle");
}

TEST(SharedGpu, DifferentOperationsAndLateRanksAreNamed) {
  EXPECT_THAT(outcome_of(3, [](Mesh& mesh, Comm& comm) { all_reduce(comm, mesh.rank() == 1 ? 11 : 10); }),
              AllOf(HasSubstr("all_reduce(sum) of 11 float32"), HasSubstr("all_reduce(sum) of 10 float32")));
  const auto miss_one = [](Mesh& mesh, Comm& comm) {
    if (mesh.rank() != 2) all_reduce(comm, 10);
  };
  EXPECT_THAT(outcome_of(4, miss_one, 0.2), HasSubstr("waited 0.2 s (comm.timeout_seconds) for all_reduce(sum) of 10 float32; rank 2 has not arrived"));
}

TEST(SharedGpu, AnErrorOfTheDeviceEndsAllRanks) {
  const std::string outcome = outcome_of(3, [](Mesh& mesh, Comm& comm) {
    all_reduce(comm, 10);
    comm.barrier().wait();
    if (mesh.rank() == 1) emulated::fail_at(2);
    for (;;) all_reduce(comm, 10);
  });
  emulated::fail_at(0);
  EXPECT_THAT(outcome, HasSubstr("a failure that a test asked for"));
}

}  // namespace
}  // namespace echelon
