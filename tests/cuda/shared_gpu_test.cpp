// How thread ranks that share an emulated GPU fail.
#include "comm/numbers.h"
#include "cuda/emulated/runtime.h"
#include "cuda/gpu_ranks.h"

#include <gmock/gmock.h>

namespace echelon {
namespace {

using conformance::Buffer;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SharedGpu, ARankThatThrowsReleasesAllThatWait) {
  for (int round = 0; round < 5; ++round)
    EXPECT_EQ(outcome_of(run_on_one_gpu, 4,
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
  EXPECT_THAT(
      outcome_of(run_on_one_gpu, 3, [](Mesh& mesh, Comm& comm) { all_reduce(comm, mesh.rank() == 1 ? 11 : 10); }),
      AllOf(HasSubstr("all_reduce(sum) of 11 float32"), HasSubstr("all_reduce(sum) of 10 float32")));
  const auto miss_one = [](Mesh& mesh, Comm& comm) {
    if (mesh.rank() != 2) all_reduce(comm, 10);
  };
  EXPECT_THAT(
      outcome_of(run_on_one_gpu, 4, miss_one, 0.2),
      HasSubstr("waited 0.2 s (comm.timeout_seconds) for all_reduce(sum) of 10 float32; rank 2 has not arrived"));
}

TEST(SharedGpu, AnErrorOfTheDeviceEndsAllRanks) {
  const std::string outcome = outcome_of(run_on_one_gpu, 3, [](Mesh& mesh, Comm& comm) {
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
