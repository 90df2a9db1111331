// NCCL among one rank: communicators, captures and their ends as they are on a chip, without a second GPU.
#include "cuda/chip/chip.h"

#include "base/error.h"
#include "comm/thread/thread_world.h"
#include "tensor/arena.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

namespace echelon::chip {
namespace {

constexpr std::int64_t num_values = 1024, num_bytes = num_values * 4;

class ChipNccl : public ::testing::Test {
 protected:
  /// x: `num_values` ones on the device.
  static void run(const std::function<void(RankDevice& device, Comm& comm, Tensor x)>& body) {
    run_thread_ranks(MeshShape(), {}, [&](Mesh& host) {
      const std::unique_ptr<RankDevice> device = backend().open(host, {.backend = CommBackend::nccl});
      const Arena memory(num_bytes, device->memory());
      const Tensor x = memory.tensor(0, DType::float32, {num_values});
      device->ops().fill(x, 1);
      body(*device, device->mesh().comm({{Axis::dp_replicate}}), x);
    });
  }
  static void expect_all(RankDevice& device, const Tensor& x, float value) {
    std::vector<float> host(num_values);
    device.ops().download(host.data(), x);
    EXPECT_EQ(host, std::vector<float>(num_values, value));
  }
};

TEST_F(ChipNccl, SumsOfOneRankAndEndsItsCommunicator) {
  run([](RankDevice& device, Comm& comm, const Tensor& x) {
    EXPECT_NE(device.description().find("NCCL"), std::string::npos) << device.description();
    comm.all_reduce(x, ReduceOp::sum).wait();
    expect_all(device, x, 1);
  });
}

TEST_F(ChipNccl, ReplaysACapturedSumAHundredTimes) {
  run([](RankDevice& device, Comm& comm, const Tensor& x) {
    comm.all_reduce(x, ReduceOp::sum).wait();  // connects
    device.ops().add(x, x, x);
    device.ops().finish();
    ASSERT_NE(device.recorder(), nullptr);
    device.recorder()->begin();
    device.ops().add(x, x, x);
    comm.all_reduce(x, ReduceOp::sum).wait();
    device.recorder()->end();
    for (int i = 0; i < 100; ++i) device.recorder()->replay();
    expect_all(device, x, std::ldexp(1.0F, 101));
  });
}

TEST_F(ChipNccl, AbortsWhatIsUnderWay) {
  try {
    run([](RankDevice&, Comm& comm, const Tensor& x) {
      const Pending pending = comm.all_reduce(x, ReduceOp::sum);
      throw Error("the rank leaves");
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 0: the rank leaves");
  }
}

}  // namespace
}  // namespace echelon::chip
