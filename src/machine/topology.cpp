#include "machine/topology.h"

#include "base/text/counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

namespace echelon {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::string line;
  std::getline(std::ifstream(path) >> std::ws, line);
  return line;
}

/// "0-3,8": those of the list that are in `cpus`.
CpuSet listed(const std::string& list, const CpuSet& cpus) {
  CpuSet found;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    int first = 0, last = 0;
    const int num_read = std::sscanf(range.c_str(), "%d-%d", &first, &last);  // NOLINT(cert-err34-c)
    if (num_read < 1) continue;
    if (num_read == 1) last = first;
    std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(found),
                 [&](int cpu) { return first <= cpu && cpu <= last; });
  }
  return found;
}

/// "480M"
std::int64_t bytes_of(const std::string& size) {
  std::istringstream text(size);
  std::int64_t bytes = 0;
  char unit = 0;
  text >> bytes >> unit;
  return unit == 'K' ? bytes << 10 : unit == 'M' ? bytes << 20 : unit == 'G' ? bytes << 30 : bytes;
}

void add_once(std::vector<CpuSet>& groups, CpuSet group) {
  if (!group.empty() && std::find(groups.begin(), groups.end(), group) == groups.end())
    groups.push_back(std::move(group));
}

void add_caches(std::map<int, CacheLevel>& caches, const fs::path& folder, const CpuSet& cpus) {
  for (int index = 0;; ++index) {
    const fs::path cache = folder / fmt::format("index{}", index);
    const std::string level = first_line(cache / "level");
    if (level.empty()) return;
    if (std::stoi(level) < 2 || first_line(cache / "type") == "Instruction") continue;
    CacheLevel& of_level = caches[std::stoi(level)];
    of_level.level = std::stoi(level);
    of_level.num_bytes = bytes_of(first_line(cache / "size"));
    add_once(of_level.groups, listed(first_line(cache / "shared_cpu_list"), cpus));
  }
}

std::string size_text(std::int64_t bytes) {
  return bytes % (1 << 20) == 0 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

/// "0-7; 8-15"
std::string groups_text(const std::vector<CpuSet>& groups) {
  std::string text;
  for (const CpuSet& group : groups) text += (text.empty() ? "" : "; ") + to_string(group);
  return text;
}

std::string text_of(const CacheLevel& cache, const std::vector<CpuSet>& cores) {
  const std::string name = fmt::format("L{} ({})", cache.level, size_text(cache.num_bytes));
  if (cache.groups.size() == cores.size()) return "own " + name;
  return cache.groups.size() == 1 ? "share " + name : fmt::format("share {} among {}", name, groups_text(cache.groups));
}

}  // namespace

CpuTopology read_topology(const CpuSet& cpus, const fs::path& root) {
  CpuTopology topology;
  std::map<int, CacheLevel> caches;
  for (const int cpu : cpus) {
    const fs::path folder = root / "cpu" / fmt::format("cpu{}", cpu);
    CpuSet threads = listed(first_line(folder / "topology/thread_siblings_list"), cpus);
    add_once(topology.cores, threads.empty() ? CpuSet{cpu} : std::move(threads));
    add_caches(caches, folder / "cache", cpus);
  }
  for (auto& [level, cache] : caches) topology.caches.push_back(std::move(cache));
  for (int node = 0; fs::exists(root / "node" / fmt::format("node{}", node)); ++node)
    add_once(topology.memory_nodes, listed(first_line(root / "node" / fmt::format("node{}", node) / "cpulist"), cpus));
  return topology;
}

std::string to_string(const CpuTopology& topology) {
  std::size_t num_threads = 0;
  for (const CpuSet& core : topology.cores) num_threads += core.size();
  const bool is_uniform = std::all_of(topology.cores.begin(), topology.cores.end(),
                                      [&](const CpuSet& core) { return core.size() == topology.cores.front().size(); });
  std::string text = counted(topology.cores.size(), "core") + ", ";
  text += is_uniform && num_threads > 0 ? counted(topology.cores.front().size(), "thread") + " each"
                                        : counted(num_threads, "thread");
  for (const CacheLevel& cache : topology.caches) text += ", " + text_of(cache, topology.cores);
  if (topology.memory_nodes.size() > 1)
    text += fmt::format(", {} memory nodes: {}", topology.memory_nodes.size(), groups_text(topology.memory_nodes));
  return text;
}

}  // namespace echelon
