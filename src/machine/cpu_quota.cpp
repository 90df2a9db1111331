// Control groups, version 2 (cpu.max) and version 1 (cpu.cfs_quota_us over cpu.cfs_period_us): see cgroups(7) and the
// kernel's cgroup-v2.rst.
#include "machine/cpus.h"

#include <algorithm>
#include <fstream>

namespace echelon {
namespace {

namespace fs = std::filesystem;

void lessen(std::optional<double>& least, std::optional<double> value) {
  if (value && (!least || *value < *least)) least = value;
}

/// "150000 100000", or "max 100000": no limit.
std::optional<double> quota_v2(const fs::path& folder) {
  std::ifstream file(folder / "cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

/// -1: no limit.
std::optional<double> quota_v1(const fs::path& folder) {
  std::ifstream quota_file(folder / "cpu.cfs_quota_us"), period_file(folder / "cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

/// The least of the group at mount + path and its ancestors. A container may see a path that is not below its mount:
/// then the mount itself is its group.
template <class Read>
std::optional<double> least_quota(const fs::path& mount, fs::path path, const Read& read) {
  std::optional<double> least = read(mount);
  for (; path.has_relative_path(); path = path.parent_path()) lessen(least, read(mount / path.relative_path()));
  return least;
}

bool has_cpu(std::string_view controllers) {
  const std::string list = "," + std::string(controllers) + ",";
  return list.find(",cpu,") != std::string::npos;
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
  const fs::path mount = root / "sys/fs/cgroup";
  std::optional<double> least;
  std::ifstream groups(root / "proc/self/cgroup");  // "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) {
      lessen(least, least_quota(mount, path, quota_v2));
      lessen(least, least_quota(mount / "unified", path, quota_v2));
    } else if (has_cpu(controllers)) {
      for (const std::string& folder : {controllers, std::string("cpu")})
        lessen(least, least_quota(mount / folder, path, quota_v1));
    }
  }
  return least;
}

}  // namespace echelon
