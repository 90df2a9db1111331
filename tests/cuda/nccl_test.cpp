// How ranks with an emulated device each, by an emulated NCCL, start, end and fail.
#include "comm/numbers.h"
#include "cuda/gpu_ranks.h"

#include <nccl.h>

#include <gmock/gmock.h>

namespace echelon {
namespace {

using conformance::Buffer;
using testing::AllOf;
using testing::HasSubstr;

// Each receives before it sends, whatever the others do first.
TEST(Nccl, NeighboursOfAPipelineMayStartInAnyOrder) {
  std::array<int, num_axes> degrees;
  degrees.fill(1);
  degrees[static_cast<std::size_t>(Axis::pp)] = 3;
  run_on_own_gpus(MeshShape(degrees), 60, [](Mesh& mesh) {
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

// In the middle, and while the others connect.
TEST(Nccl, ARankThatThrowsReleasesAllThatWait) {
  for (int round = 0; round < 8; ++round)
    EXPECT_EQ(outcome_of(run_on_own_gpus, 4,
                         [&](Mesh& mesh, Comm& comm) {
                           if (round < 4) all_reduce(comm, 10);
                           if (mesh.rank() == round % 4) throw Error("left in the middle");
                           for (;;) all_reduce(comm, 10);
                         }),
              "rank " + std::to_string(round % 4) + ": left in the middle");
}

TEST(Nccl, ALongWaitNamesTheOperation) {
  const auto miss_the_second = [](Mesh& mesh, Comm& comm) {
    all_reduce(comm, 20);
    if (mesh.rank() != 2) all_reduce(comm, 10);
  };
  const auto second = HasSubstr("all_reduce(sum) of 10 float32 in group dp_replicate (ranks 0, 1, 2, 3)");
  EXPECT_THAT(outcome_of(run_on_own_gpus, 4, miss_the_second, 0.2), AllOf(HasSubstr("not done after 0.2 s (comm.timeout_seconds); rank "), second));
  const auto miss_the_first = [](Mesh& mesh, Comm& comm) {
    if (mesh.rank() != 2) all_reduce(comm, 10);
  };
  EXPECT_THAT(outcome_of(run_on_own_gpus, 4, miss_the_first, 0.2),
              AllOf(HasSubstr("ranks do not connect after 0.2 s (comm.timeout_seconds); rank "), HasSubstr("waits among ranks 0, 1, 2, 3 with "), second));
}

TEST(Nccl, AnErrorOfTheNetworkEndsAllRanks) {
  const std::string outcome = outcome_of(run_on_own_gpus, 3, [](Mesh& mesh, Comm& comm) {
    all_reduce(comm, 10);
    comm.barrier().wait();
    if (mesh.rank() == 1) emulated::set_nccl_error(ncclRemoteError);
    for (;;) all_reduce(comm, 10);
  });
  emulated::set_nccl_error(ncclSuccess);
  EXPECT_THAT(outcome, AllOf(HasSubstr(": NCCL "), HasSubstr(": remote process exited or there was a network error")));
}

TEST(Nccl, WhatIsDroppedWithoutAWaitIsNamed) {
  const std::string outcome = outcome_of(run_on_own_gpus, 3, [](Mesh& mesh, Comm& comm) {
    Buffer x(DType::float32, 10);
    Pending reduced = comm.all_reduce(x.tensor(), ReduceOp::sum);
    if (mesh.rank() != 1) reduced.wait();
  });
  EXPECT_THAT(outcome, HasSubstr("rank 1 dropped, without waiting for it, its all_reduce(sum) of 10 float32"));
}

}  // namespace
}  // namespace echelon
