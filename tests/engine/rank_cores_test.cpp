// Which threads and cores ranks get, with ranks as threads of this process.
#include "engine/device/rank_cores.h"

#include "base/error.h"
#include "comm/thread/thread_world.h"
#include "machine/cores.h"
#include "spec/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

namespace echelon {
namespace {

using ::testing::HasSubstr;

MeshShape data_parallel(int num_ranks) { return MeshShape({{Axis::dp_replicate, num_ranks}}); }

struct Placed {
  RankCores cores;
  CpuSet allowed;  // afterwards
};

std::vector<Placed> place(int num_ranks, const RunConfig& config) {
  std::vector<Placed> placed(static_cast<std::size_t>(num_ranks));
  run_thread_ranks(data_parallel(num_ranks), {}, [&](Mesh& mesh) {
    Placed& own = placed[static_cast<std::size_t>(mesh.rank())];
    own.cores = claim_cores(config, mesh);
    own.allowed = allowed_cpus();
  });
  return placed;
}

class ClaimingCores : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("OMP_NUM_THREADS"); }
  void TearDown() override { unsetenv("OMP_NUM_THREADS"); }
  const CpuSet cpus_ = allowed_cpus();
  const int num_cores_ = static_cast<int>(cores_among(cpus_).size());
  const bool has_quota_ = cpu_quota().has_value();
};

TEST_F(ClaimingCores, OneRankHasEverything) {
  const Placed only = place(1, {})[0];
  EXPECT_EQ(only.cores.cpus, cpus_);
  EXPECT_FALSE(only.cores.is_bound);
  EXPECT_EQ(only.allowed, cpus_);
  EXPECT_EQ(only.cores.num_threads, num_usable_cores());
}

TEST_F(ClaimingCores, AsManyRanksAsCoresHaveOneEach) {
  if (num_cores_ < 2) GTEST_SKIP() << "one core";
  CpuSet seen;
  for (const Placed& rank : place(num_cores_, {})) {
    EXPECT_TRUE(rank.cores.is_bound);
    EXPECT_EQ(rank.cores.num_threads, 1);
    EXPECT_EQ(rank.allowed, rank.cores.cpus);
    seen.insert(seen.end(), rank.allowed.begin(), rank.allowed.end());
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, cpus_);
  EXPECT_EQ(allowed_cpus(), cpus_);  // this thread's own
}

TEST_F(ClaimingCores, MoreRanksThanCoresTakeTurnsOnThem) {
  const std::vector<CpuSet> cores = divide_cores(cpus_, num_usable_cores());
  for (const Placed& rank : place(num_cores_ + 1, {})) {
    EXPECT_FALSE(rank.cores.is_bound);
    EXPECT_EQ(rank.cores.num_threads, 1);
    EXPECT_EQ(rank.cores.num_neighbours, num_cores_ + 1);
    EXPECT_EQ(rank.cores.cpus, cpus_);
    EXPECT_THAT(cores, ::testing::Contains(rank.allowed));
  }
}

TEST_F(ClaimingCores, NoTwoTurnsAreOnOneCore) {
  std::map<CpuSet, std::atomic<int>> num_here;
  for (const CpuSet& core : divide_cores(cpus_, num_usable_cores())) num_here[core] = 0;
  run_thread_ranks(data_parallel(2 * num_usable_cores() + 1), {}, [&](Mesh& mesh) {
    (void)claim_cores({}, mesh);
    for (int turn = 0; turn < 100; ++turn) {
      mesh.comm(world_group).barrier().wait();
      std::atomic<int>& here = num_here.at(allowed_cpus());
      EXPECT_EQ(here.fetch_add(1), 0);
      for (int i = 0; i < 1000; ++i) here.load();
      here.fetch_sub(1);
    }
  });
}

TEST_F(ClaimingCores, TurnsAreNotBoundWhereNobodyWantsIt) {
  RunConfig config;
  config.comm.bind = RankBinding::none;
  for (const Placed& rank : place(num_cores_ + 1, config)) EXPECT_EQ(rank.allowed, cpus_);
}

TEST_F(ClaimingCores, NobodyIsBoundWhoDoesNotWantIt) {
  RunConfig config;
  config.comm.bind = RankBinding::none;
  for (const Placed& rank : place(2, config)) {
    EXPECT_FALSE(rank.cores.is_bound);
    EXPECT_EQ(rank.allowed, cpus_);
    if (!has_quota_) {
      EXPECT_EQ(rank.cores.num_threads, std::max(1, num_cores_ / 2));
    }
  }
}

TEST_F(ClaimingCores, TakesTheThreadsThatAreAskedFor) {
  setenv("OMP_NUM_THREADS", "3,1", 1);
  EXPECT_EQ(place(1, {})[0].cores.num_threads, 3);
  RunConfig config;
  config.training.num_threads = 5;
  EXPECT_EQ(place(1, config)[0].cores.num_threads, 5);
  for (const char* wrong : {"0", "-1", "many", "2x", "4097"}) {
    setenv("OMP_NUM_THREADS", wrong, 1);
    try {
      (void)num_threads_of_environment();
      FAIL() << wrong;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("OMP_NUM_THREADS = '" + std::string(wrong) + "'"));
    }
  }
}

// What a launcher or taskset leaves to the process is what its ranks divide.
TEST_F(ClaimingCores, StaysInsideTheMaskOfTheProcess) {
  std::thread([&] {
    const CpuSet last = {cpus_.back()};
    ASSERT_TRUE(bind_this_thread(last));
    for (const Placed& rank : place(2, {})) {
      EXPECT_EQ(rank.allowed, last);
      EXPECT_EQ(rank.cores.num_threads, 1);
    }
    EXPECT_EQ(place(1, {})[0].cores.num_threads, 1);
  }).join();
}

}  // namespace
}  // namespace echelon
