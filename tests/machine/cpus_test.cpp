// Available CPUs: masks compared with other reports of the system, quotas in trees of control groups, shares of
// synthetic hwloc machines.
#include "machine/cpus.h"

#include "machine/cores.h"
#include "machine/host.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <thread>

namespace echelon {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

/// Runs `f` in a process with a synthetic hwloc machine, and returns its output. hwloc reads a machine once, so this
/// runs before all other tests.
std::string on_machine(const char* description, const std::function<std::string()>& f) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv("HWLOC_SYNTHETIC", description, 1);
    const std::string text = f();
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, read(ends[0], text.data(), text.size()))));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

std::string shares_of(const CpuSet& cpus, int num_shares) {
  std::string text;
  for (const CpuSet& share : divide_cores(cpus, num_shares)) text += to_string(share) + ";";
  return text;
}

// Two packages of two cores with two threads each, numbered as Linux does on such machines: cores first, then their
// second threads.
constexpr const char* two_packages = "package:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)";

TEST(Cores, AreWholeAndNeighboursInAShare) {
  if (!knows_topology()) GTEST_SKIP() << "built without hwloc";
  const CpuSet all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(on_machine(two_packages, [&] { return shares_of(all, 2); }), "0-1,4-5;2-3,6-7;");
  EXPECT_EQ(on_machine(two_packages, [&] { return shares_of(all, 4); }), "0,4;1,5;2,6;3,7;");
  EXPECT_EQ(on_machine(two_packages, [&] { return shares_of(all, 3); }), "0,4;1,5;2-3,6-7;");
  EXPECT_EQ(on_machine(two_packages, [&] { return shares_of(all, 5); }), "");              // four cores
  EXPECT_EQ(on_machine(two_packages, [&] { return shares_of({1, 2, 6}, 2); }), "1;2,6;");  // a mask that splits cores
}

TEST(Cpus, AreWrittenAsTheSystemDoes) {
  EXPECT_EQ(to_string(CpuSet{}), "");
  EXPECT_EQ(to_string({5}), "5");
  EXPECT_EQ(to_string({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

std::string allowed_by_the_system() {
  std::ifstream status("/proc/thread-self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Cpus_allowed_list:")) return line.substr(line.find('\t') + 1);
  return "";
}

TEST(Cpus, FollowTheAffinityOfTheThread) {
  EXPECT_EQ(to_string(allowed_cpus()), allowed_by_the_system());
  std::thread([] {
    const CpuSet last = {allowed_cpus().back()};
    ASSERT_TRUE(bind_this_thread(last));
    EXPECT_EQ(allowed_cpus(), last);
    EXPECT_EQ(to_string(last), allowed_by_the_system());
    EXPECT_EQ(num_usable_cores(), 1);
    std::thread([&] { EXPECT_EQ(allowed_cpus(), last); }).join();  // threads inherit it
  }).join();
  EXPECT_FALSE(bind_this_thread({}));
}

/// A file system with nothing but control groups.
class Quota : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  const fs::path root_ = fs::path(scratch_folder()) / ("echelon-quota-" + std::to_string(getpid()));
};

TEST_F(Quota, IsNoneWithoutGroups) { EXPECT_EQ(cpu_quota(root_), std::nullopt); }

TEST_F(Quota, IsTheLeastOfTheGroupAndThoseAroundIt) {
  write("proc/self/cgroup", "0::/pods/one/worker\n");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  write("sys/fs/cgroup/pods/one/worker/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 4.0);
  write("sys/fs/cgroup/pods/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 1.5);
  write("sys/fs/cgroup/pods/one/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(root_), 1.5);
}

// A container with its own namespace sees "/", and its limit at the mount.
TEST_F(Quota, IsFoundAtTheMountOfAContainer) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 2.0);
}

TEST_F(Quota, IsReadFromVersionOne) {
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root_), 0.5);
}

TEST_F(Quota, OfOtherControllersDoesNotCount) {
  write("proc/self/cgroup", "4:cpuset,cpuacct:/a\n");
  write("sys/fs/cgroup/cpuset,cpuacct/a/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpuset,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
}

TEST(Cores, OfThisMachineHoldEveryCpuOnce) {
  CpuSet seen;
  for (const CpuSet& core : cores_among(allowed_cpus())) seen.insert(seen.end(), core.begin(), core.end());
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, allowed_cpus());
  EXPECT_THAT(divide_cores(allowed_cpus(), 1), ElementsAre(allowed_cpus()));
  EXPECT_THAT(divide_cores(allowed_cpus(), static_cast<int>(allowed_cpus().size()) + 1), IsEmpty());
}

TEST(Host, IsTheSameAtEveryLook) {
  EXPECT_EQ(host_id(), host_id());
  EXPECT_NE(host_id(), 0U);
}

}  // namespace
}  // namespace echelon
