// How busy other processes keep the CPUs: for measurements that need an idle machine.
#pragma once

#include "machine/cpus.h"

#include <filesystem>
#include <optional>

namespace echelon {

/// Time of some CPUs since the machine started, in the system's ticks (proc(5), /proc/stat).
struct CpuTicks {
  double busy = 0, total = 0;
};
/// None if the file cannot be read or does not list them.
[[nodiscard]] std::optional<CpuTicks> read_cpu_ticks(const CpuSet& cpus,
                                                     const std::filesystem::path& stat = "/proc/stat");

/// From its construction on: the part of the time of all CPUs of this process that others used.
class OthersMeter {
 public:
  OthersMeter();
  /// 0 to 1; 0 where the system does not tell.
  [[nodiscard]] double share() const;

 private:
  CpuSet cpus_;
  std::optional<CpuTicks> first_;
  double own_ticks_;
};

/// That part over the next `seconds`.
[[nodiscard]] double share_of_others(double seconds);

}  // namespace echelon
