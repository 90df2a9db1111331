// Topologies that Linux lists, written by hand.
#include "machine/topology.h"

#include "scratch_folder.h"

#include <gtest/gtest.h>

#include <fstream>

namespace echelon {
namespace {

namespace fs = std::filesystem;

class Topology : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  /// A hardware thread whose core, second cache and third cache have these threads.
  void add_thread(int cpu, const std::string& core, const std::string& second, const std::string& third) const {
    const std::string folder = "cpu/cpu" + std::to_string(cpu) + "/";
    write(folder + "topology/thread_siblings_list", core);
    const struct {
      const char *level, *type, *size;
      std::string shared;
    } caches[] = {{"1", "Data", "48K", core},
                  {"1", "Instruction", "64K", core},
                  {"2", "Unified", "512K", second},
                  {"3", "Unified", "32768K", third}};
    for (int index = 0; index < 4; ++index) {
      const std::string cache = folder + "cache/index" + std::to_string(index) + "/";
      write(cache + "level", caches[index].level);
      write(cache + "type", caches[index].type);
      write(cache + "size", caches[index].size);
      write(cache + "shared_cpu_list", caches[index].shared);
    }
  }
  const fs::path root_ = fs::path(scratch_folder()) / "topology";
};

TEST_F(Topology, TellsCachesAndMemoryNodesApart) {
  for (int cpu = 0; cpu < 4; ++cpu) add_thread(cpu, std::to_string(cpu), std::to_string(cpu), cpu < 2 ? "0-1" : "2-3");
  write("node/node0/cpulist", "0-1");
  write("node/node1/cpulist", "2-3");
  EXPECT_EQ(to_string(read_topology({0, 1, 2, 3}, root_)),
            "4 cores, 1 thread each, own L2 (512 KiB), share L3 (32 MiB) among 0-1; 2-3, 2 memory nodes: 0-1; 2-3");
  EXPECT_EQ(to_string(read_topology({2, 3}, root_)), "2 cores, 1 thread each, own L2 (512 KiB), share L3 (32 MiB)");
}

TEST_F(Topology, TellsHyperthreadsFromCores) {
  for (int cpu = 0; cpu < 4; ++cpu) {
    const std::string core = cpu % 2 == 0 ? "0,2" : "1,3";
    add_thread(cpu, core, core, "0-3");
  }
  const CpuTopology topology = read_topology({0, 1, 2, 3}, root_);
  EXPECT_EQ(topology.cores, (std::vector<CpuSet>{{0, 2}, {1, 3}}));
  EXPECT_EQ(to_string(topology), "2 cores, 2 threads each, own L2 (512 KiB), share L3 (32 MiB)");
  EXPECT_EQ(to_string(read_topology({0, 1, 2}, root_)), "2 cores, 3 threads, own L2 (512 KiB), share L3 (32 MiB)");
}

TEST_F(Topology, OfASecondCacheThatTwoCoresShare) {
  for (int cpu = 0; cpu < 4; ++cpu) add_thread(cpu, std::to_string(cpu), cpu < 2 ? "0-1" : "2-3", "0-3");
  EXPECT_EQ(to_string(read_topology({0, 1, 2, 3}, root_)),
            "4 cores, 1 thread each, share L2 (512 KiB) among 0-1; 2-3, share L3 (32 MiB)");
}

TEST_F(Topology, OfASystemThatListsNothing) {
  EXPECT_EQ(to_string(read_topology({0, 5}, root_)), "2 cores, 1 thread each");
}

}  // namespace
}  // namespace echelon
