// The processors that this process may use: by its affinity mask (taskset, a launcher, a cpuset) and by the time that
// its control groups grant (containers).
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace echelon {

/// Numbers that the system gives to its hardware threads, ascending.
using CpuSet = std::vector<int>;
[[nodiscard]] std::string to_string(const CpuSet& cpus);  // "0-3,8"

/// What the calling thread may run on, and threads that it starts from then on.
[[nodiscard]] CpuSet allowed_cpus();
/// False if the system refuses.
bool bind_this_thread(const CpuSet& cpus);
/// Another one of this process, by the number that the system has given it.
bool bind_thread(pid_t thread, const CpuSet& cpus);

/// Processors' worth of time per period that the control groups of this process grant (cpu.max, or cpu.cfs_quota_us of
/// version 1), the least of the group and those around it. None: no limit. `root`: of the file system.
[[nodiscard]] std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// How many threads of this process can compute at a time: cores (machine/cores.h) that it may use, within its quota.
/// At least 1.
[[nodiscard]] int num_usable_cores();

}  // namespace echelon
