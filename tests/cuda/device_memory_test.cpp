// A run whose arenas are larger than what is free on the GPUs that hold them is refused by every rank before they are
// allocated: GPU by GPU.
#include "base/error.h"
#include "comm/thread/thread_world.h"
#include "cuda/cuda_backend.h"
#include "cuda/emulated/runtime.h"
#include "engine/run_device.h"
#include "parity/layout.h"

#include <nccl.h>

#include <gmock/gmock.h>

#include <algorithm>

namespace echelon::testing {
namespace {

using ::testing::HasSubstr;

class GpuLoads : public ::testing::Test {
 protected:
  GpuLoads() {
    RunConfig config = config_of({.replicate = 3, .layers = 1});
    config.training.seq_len = config.model.max_position_embeddings = 16;
    config.training.micro_batch_size = 8;
    config.training.global_batch_size = 24;
    blueprint_ = std::make_unique<Blueprint>(config);
    arena_bytes_ = blueprint_->rank(0).arena_bytes();
    config.training.micro_batch_size = 4;
    const Blueprint smaller(config);
    smaller_arena_bytes_ = smaller.rank(0).arena_bytes();
  }
  ~GpuLoads() override {
    emulated::set_num_devices(1);
    emulated::set_memory_bytes(std::int64_t{80} << 30);
  }
  /// Of three ranks: what the first of them throws, once for each that does.
  [[nodiscard]] std::vector<std::string> outcomes(int num_gpus, std::int64_t memory_bytes) const {
    emulated::set_num_devices(num_gpus);
    emulated::set_memory_bytes(memory_bytes);
    std::string reason;
    const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
    std::vector<std::string> words(3);
    run_thread_ranks(blueprint_->mesh(), {.timeout_seconds = 60}, [&](Mesh& host) {
      try {
        (void)open_device(*backend, *blueprint_, host, 1);
      } catch (const Error& error) {
        words[static_cast<std::size_t>(host.rank())] = error.what();
      }
    });
    std::erase(words, "");
    return words;
  }

  // What a rank takes before its arena, and what is left to libraries that have not started.
  static constexpr std::int64_t mib = std::int64_t{1} << 20, workspace = 32 * mib, of_libraries = 256 * mib;
  std::unique_ptr<Blueprint> blueprint_;
  std::int64_t arena_bytes_ = 0, smaller_arena_bytes_ = 0;
};

TEST_F(GpuLoads, HoldsTheRankOfEachGpu) {
  constexpr std::int64_t overhead = workspace + 16 * emulated::bytes_of_a_block + of_libraries;  // of gradients
  EXPECT_TRUE(outcomes(3, arena_bytes_ + overhead).empty());
  const std::vector<std::string> refused = outcomes(3, arena_bytes_ + overhead - 1);
  ASSERT_EQ(refused.size(), 3U);
  EXPECT_THAT(refused.front(), HasSubstr("GiB on the device of rank 0, where"));
  EXPECT_THAT(refused.front(), HasSubstr("training.micro_batch_size = 8"));
  EXPECT_THAT(refused.front(), HasSubstr("(use training.micro_batch_size = 4)"));
  EXPECT_EQ(refused.front(), refused.back());
  EXPECT_THAT(outcomes(3, smaller_arena_bytes_ + overhead - 1).front(),
              HasSubstr("(use training.micro_batch_size = 2)"));
}

// Three ranks do not fit on two GPUs each for itself, so all share the first, and the other one's memory is none of
// theirs.
TEST_F(GpuLoads, HoldsAllRanksThatShareAGpu) {
  constexpr std::int64_t overhead = 3 * workspace + of_libraries;
  EXPECT_TRUE(outcomes(2, 3 * arena_bytes_ + overhead).empty());
  const std::vector<std::string> refused = outcomes(2, 3 * arena_bytes_ + overhead - 1);
  ASSERT_EQ(refused.size(), 3U);
  EXPECT_THAT(refused.front(), HasSubstr("GiB on the device of rank 0 for 3 ranks, where"));
}

}  // namespace
}  // namespace echelon::testing
