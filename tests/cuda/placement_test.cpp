// Which GPU a rank gets, and what is said where it gets none.
#include "cuda/comm/placement.h"
#include "base/error.h"
#include "comm/thread/thread_world.h"
#include "cuda/comm/nvlink.h"
#include "cuda/cuda_backend.h"
#include "cuda/emulated/runtime.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace echelon::cuda {
namespace {

using ::testing::HasSubstr;

std::vector<int> choices(const std::vector<RankSite>& sites) {
  std::vector<int> gpus;
  for (std::size_t rank = 0; rank < sites.size(); ++rank) gpus.push_back(choose_gpu(sites, static_cast<int>(rank)));
  return gpus;
}

TEST(GpuPlacement, RanksOfAHostTakeItsGpusInTheirOrder) {
  EXPECT_EQ(choices({{7, 1, 4}, {7, 1, 4}, {7, 1, 4}, {7, 1, 4}}), (std::vector<int>{0, 1, 2, 3}));  // threads
  // Processes on two hosts.
  EXPECT_EQ(choices({{7, 1, 2}, {8, 1, 2}, {7, 5, 2}, {8, 9, 2}}), (std::vector<int>{0, 0, 1, 1}));
  // Each process sees its own.
  EXPECT_EQ(choices({{7, 1, 1}, {7, 2, 1}, {7, 3, 1}}), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(choices({{7, 1, 2}, {7, 1, 2}, {7, 1, 2}}), (std::vector<int>{0, 0, 0}));  // too few
}

TEST(GpuPlacement, SlicesOfAGpuAreGpus) {
  const std::string address = "0000:01:00.0";
  EXPECT_EQ(identity_of_gpu(address, nullptr, 0), address);
  EXPECT_EQ(identity_of_gpu(address, "3,4", 1), address);  // numbers, which another process may count otherwise
  EXPECT_EQ(identity_of_gpu(address, "GPU-1a", 0), address);
  EXPECT_NE(identity_of_gpu(address, "MIG-1a,MIG-2b", 0), identity_of_gpu(address, "MIG-1a, MIG-2b", 1));
  EXPECT_EQ(identity_of_gpu(address, "MIG-2b", 0), identity_of_gpu(address, "MIG-1a, MIG-2b", 1));
}

TEST(GpuPlacement, GpusThatNvlinkJoinsFollowEachOther) {
  using Links = std::vector<std::pair<int, int>>;
  const auto order = [](int num_gpus, const Links& links) {
    return order_by_islands(
        num_gpus, [&](int a, int b) { return std::find(links.begin(), links.end(), std::pair(a, b)) != links.end(); });
  };
  EXPECT_EQ(order(4, {}), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(order(4, {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(order(4, {{0, 2}, {1, 3}}), (std::vector<int>{0, 2, 1, 3}));
  // Two ranks of three GPUs get those that are joined.
  EXPECT_EQ(order(3, {{1, 2}}), (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(order(6, {{0, 5}, {1, 2}, {2, 5}}), (std::vector<int>{0, 1, 2, 5, 3, 4}));  // by way of others
  EXPECT_EQ(order(0, {}), std::vector<int>{});
}

/// GPUs of the emulation, one again afterwards.
class GpuBackend : public ::testing::Test {
 protected:
  ~GpuBackend() override {
    emulated::set_num_devices(1);
    emulated::set_num_islands(1);
    emulated::set_start_error(cudaSuccess);
    emulated::set_capability(90);
  }
  static std::string reason() {
    std::string why;
    EXPECT_EQ(make_cuda_backend(why), nullptr);
    return why;
  }
  static std::string outcome_of(int num_ranks, const RankOptions& options) {
    std::string why;
    const std::unique_ptr<Backend> backend = make_cuda_backend(why);
    try {
      run_thread_ranks(MeshShape({{Axis::dp_replicate, num_ranks}}), {.timeout_seconds = 60},
                       [&](Mesh& host) { (void)backend->open(host, options); });
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(GpuBackend, SaysWhyThereIsNone) {
  emulated::set_num_devices(0);
  EXPECT_EQ(reason(), "the driver finds no GPU on this machine");
  emulated::set_num_devices(1);
  emulated::set_start_error(cudaErrorInsufficientDriver);
  EXPECT_THAT(reason(), HasSubstr("the NVIDIA driver is of CUDA 13.0, but CUDA 13.0 is needed"));
  emulated::set_start_error(cudaSuccess);
  emulated::set_capability(75);
  EXPECT_THAT(reason(), HasSubstr("GPU 0 (Emulated H100) has compute capability 7.5, but 8.0 is needed"));
}

TEST_F(GpuBackend, NeighboursGetGpusThatNvlinkJoins) {
  emulated::set_num_devices(4);
  emulated::set_num_islands(2);
  std::vector<int> gpus(4);
  run_thread_ranks(MeshShape({{Axis::dp_replicate, 4}}), {.timeout_seconds = 60},
                   [&](Mesh& host) { gpus[static_cast<std::size_t>(host.rank())] = place_on_gpu(host).index; });
  EXPECT_EQ(gpus, (std::vector<int>{0, 2, 1, 3}));
}

TEST_F(GpuBackend, RanksThatShareAGpuAreRefusedByName) {
  EXPECT_THAT(outcome_of(3, {.backend = CommBackend::nccl}),
              HasSubstr("comm.backend = nccl needs a GPU for every rank, but 3 ranks share GPU 0 (use auto, or"));
  EXPECT_THAT(outcome_of(129, {}), HasSubstr("the mesh has 129 ranks"));
  EXPECT_EQ(outcome_of(2, {}), "");
}

}  // namespace
}  // namespace echelon::cuda
