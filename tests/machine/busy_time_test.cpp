#include "machine/busy_time.h"

#include "base/clock.h"
#include "scratch_folder.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

namespace echelon {
namespace {

namespace fs = std::filesystem;

// user 10, nice 20, system 30, idle 400, iowait 50, irq 1, softirq 2, steal 3; guests are counted in user.
TEST(CpuTicks, AreThoseOfTheCpusThatAreAskedFor) {
  const fs::path stat = fs::path(scratch_folder()) / "stat";
  std::ofstream(stat) << "cpu  99 99 99 99 99 99 99 99 99 99\ncpu0 10 20 30 400 50 1 2 3 7 8\n"
                         "cpu1 1 1 1 1 1 1 1 1 0 0\ncpu10 5 0 0 5 0 0 0 0 0 0\nintr 5 6 7\n";
  const std::optional<CpuTicks> ticks = read_cpu_ticks({0, 10}, stat);
  ASSERT_TRUE(ticks);
  EXPECT_EQ(ticks->busy, 10 + 20 + 30 + 1 + 2 + 3 + 5);
  EXPECT_EQ(ticks->total, 516 + 10);
  EXPECT_FALSE(read_cpu_ticks({0, 2}, stat)) << "cpu2 is not in it";
  EXPECT_FALSE(read_cpu_ticks({0}, stat.string() + "-none"));
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

constexpr double of_ticks = 0.08;  // seconds by which counts of 0.01 s on each CPU may be off

// What is left of the CPUs' time after that of this process bounds what others used, on a machine of any load.
TEST(OthersMeter, LeavesOutThisProcess) {
  const double num_cpus = static_cast<double>(allowed_cpus().size());
  const OthersMeter meter;
  const double before = cpu_seconds(), start = now_seconds();
  while (cpu_seconds() < before + 0.4) {
  }
  const double capacity = num_cpus * (now_seconds() - start);
  EXPECT_LE(meter.share() * capacity, capacity - 0.4 + of_ticks);
}

TEST(OthersMeter, CountsAnotherProcess) {
  const double num_cpus = static_cast<double>(allowed_cpus().size());
  const OthersMeter meter;
  const double start = now_seconds();
  const pid_t child = fork();
  if (child == 0) {
    while (cpu_seconds() < 0.4) {
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_GE(meter.share() * num_cpus * (now_seconds() - start), 0.4 - of_ticks);
}

}  // namespace
}  // namespace echelon
