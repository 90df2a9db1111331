#include "machine/busy_time.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace echelon {
namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Of all threads of this process, ended ones too.
double own_ticks() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return (seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime)) * static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// Of a line "cpu3 user nice system idle iowait irq softirq steal ...": guests are in user already.
CpuTicks ticks_of(std::istringstream& line) {
  CpuTicks ticks;
  double value = 0;
  for (int column = 0; column < 8 && line >> value; ++column) {
    ticks.total += value;
    const bool is_idle = column == 3 || column == 4;
    if (!is_idle) ticks.busy += value;
  }
  return ticks;
}

}  // namespace

std::optional<CpuTicks> read_cpu_ticks(const CpuSet& cpus, const std::filesystem::path& stat) {
  std::ifstream file(stat);
  CpuTicks sum;
  std::size_t num_found = 0;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string name;
    line >> name;
    const bool is_wanted =
        std::any_of(cpus.begin(), cpus.end(), [&](int cpu) { return name == "cpu" + std::to_string(cpu); });
    if (!is_wanted) continue;
    const CpuTicks ticks = ticks_of(line);
    sum.busy += ticks.busy;
    sum.total += ticks.total;
    ++num_found;
  }
  if (num_found == 0 || num_found != cpus.size()) return std::nullopt;
  return sum;
}

OthersMeter::OthersMeter() : cpus_(allowed_cpus()), first_(read_cpu_ticks(cpus_)), own_ticks_(own_ticks()) {}

double OthersMeter::share() const {
  const std::optional<CpuTicks> now = read_cpu_ticks(cpus_);
  if (!first_ || !now || now->total <= first_->total) return 0;
  const double others = (now->busy - first_->busy) - (own_ticks() - own_ticks_);
  return std::clamp(others / (now->total - first_->total), 0.0, 1.0);
}

double share_of_others(double seconds) {
  const OthersMeter meter;
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return meter.share();
}

}  // namespace echelon
