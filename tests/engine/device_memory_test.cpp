// Which devices are too small, from what ranks say of theirs: processes that see one GPU each, GPUs of several sizes,
// ranks that share some of them.
#include "engine/device/device_memory.h"

#include "base/error.h"
#include "blueprint/small_config.h"
#include "comm/thread/thread_world.h"

#include <gmock/gmock.h>

namespace echelon {
namespace {

using ::testing::HasSubstr;

class DeviceMemories : public ::testing::Test {
 protected:
  static Blueprint blueprint_of_eight_ranks() {
    RunConfig config = testing::small_config();
    config.parallelism.data_parallel_replicate_degree = 4;
    config.parallelism.pipeline_parallel_degree = 2;
    return Blueprint(config);
  }
  /// Of eight ranks, each with a device of its own unless `facts` says otherwise.
  std::string outcome(const std::function<void(int rank, DeviceFacts&)>& facts) {
    try {
      run_thread_ranks(blueprint_.mesh(), {.timeout_seconds = 60}, [&](Mesh& host) {
        DeviceFacts own;
        own.identity = host.rank();
        own.memory_bytes = blueprint_.rank(host.rank()).arena_bytes();
        facts(host.rank(), own);
        require_device_memory(blueprint_, own, host);
      });
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  Blueprint blueprint_ = blueprint_of_eight_ranks();
};

TEST_F(DeviceMemories, AreEachForTheirOwnRanks) {
  EXPECT_EQ(outcome([](int, DeviceFacts&) {}), "");
  EXPECT_THAT(outcome([](int rank, DeviceFacts& own) { own.memory_bytes -= rank == 5 ? 1 : 0; }),
              HasSubstr("on the device of rank 5, where"));
}

TEST_F(DeviceMemories, AreSharedByTheRanksThatHaveTheDevice) {
  const auto pairs = [](std::int64_t factor) {
    return [factor](int rank, DeviceFacts& own) {
      own.identity = rank / 2;
      own.memory_bytes *= factor;
    };
  };
  EXPECT_EQ(outcome(pairs(3)), "");
  EXPECT_THAT(outcome(pairs(1)), HasSubstr("on the device of rank 0 for 2 ranks, where"));
}

TEST_F(DeviceMemories, MayBeUnknown) {
  EXPECT_EQ(outcome([](int, DeviceFacts& own) { own.memory_bytes = 0; }), "");
}

}  // namespace
}  // namespace echelon
