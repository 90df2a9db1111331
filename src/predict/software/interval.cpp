#include "predict/software/interval.h"

namespace echelon {
namespace {

constexpr TimeInterval of_gpus = {.low = 0.895, .high = 1.19}, of_hosts = {.low = 0.94, .high = 1.18};

}  // namespace

std::optional<TimeInterval> interval_of(const SoftwareProfile& profile, const MachineSpec& machine) {
  if (machine.host) return of_hosts;
  if (profile.is_echelon && !profile.borrows_rates) return std::nullopt;
  return of_gpus;
}

}  // namespace echelon
