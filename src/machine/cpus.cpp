#include "machine/cpus.h"

#include "machine/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>

namespace echelon {
namespace {

constexpr int most_cpus = 1 << 16;

struct FreeMask {
  void operator()(cpu_set_t* mask) const { CPU_FREE(mask); }
};
using Mask = std::unique_ptr<cpu_set_t, FreeMask>;

}  // namespace

std::string to_string(const CpuSet& cpus) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < cpus.size(); first = last + 1) {
    last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[first]);
    if (last > first) text += fmt::format("-{}", cpus[last]);
  }
  return text;
}

CpuSet allowed_cpus() {
  CpuSet cpus;
  // The kernel's mask may be longer than the C library's type.
  for (int size = 1024; size <= most_cpus && cpus.empty(); size *= 2) {
    const Mask mask(CPU_ALLOC(size));
    if (sched_getaffinity(0, CPU_ALLOC_SIZE(size), mask.get()) != 0) continue;
    for (int cpu = 0; cpu < size; ++cpu)
      if (CPU_ISSET_S(cpu, CPU_ALLOC_SIZE(size), mask.get())) cpus.push_back(cpu);
  }
  if (!cpus.empty()) return cpus;
  for (int cpu = 0; cpu < static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); ++cpu)
    cpus.push_back(cpu);
  return cpus;
}

bool bind_this_thread(const CpuSet& cpus) { return bind_thread(0, cpus); }

bool bind_thread(pid_t thread, const CpuSet& cpus) {
  if (cpus.empty()) return false;
  const int size = std::max(1024, cpus.back() + 1);
  const Mask mask(CPU_ALLOC(size));
  CPU_ZERO_S(CPU_ALLOC_SIZE(size), mask.get());
  for (const int cpu : cpus) CPU_SET_S(cpu, CPU_ALLOC_SIZE(size), mask.get());
  return sched_setaffinity(thread, CPU_ALLOC_SIZE(size), mask.get()) == 0;
}

int num_usable_cores() {
  const auto num_cores = static_cast<int>(cores_among(allowed_cpus()).size());
  const auto quota = cpu_quota();
  return std::max(1, quota ? std::min(num_cores, static_cast<int>(std::ceil(*quota))) : num_cores);
}

}  // namespace echelon
