// The CPUs that this process may use, given its affinity mask (taskset, a launcher, a cpuset) and the quota of its
// control groups (containers).
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace echelon {

/// Ids of hardware threads, ascending.
using CpuSet = std::vector<int>;
[[nodiscard]] std::string to_string(const CpuSet& cpus);  // "0-3,8"

/// Sets where the calling thread, and threads that it starts later, may run.
[[nodiscard]] CpuSet allowed_cpus();
/// False if the system refuses.
bool bind_this_thread(const CpuSet& cpus);
/// The same for another thread of this process, by its thread id.
bool bind_thread(pid_t thread, const CpuSet& cpus);

/// CPUs' worth of time that the control groups of this process grant (cpu.max, or cpu.cfs_quota_us of version 1): the
/// least of the group and its ancestors. None: no limit. `root`: of the file system.
[[nodiscard]] std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// How many threads of this process can compute at a time: its usable cores (machine/cores.h), within its quota. At
/// least 1.
[[nodiscard]] int num_usable_cores();

}  // namespace echelon
