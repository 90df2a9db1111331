#include "predict/software/interval.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr TimeInterval of_gpus = {.low = 0.895, .high = 1.19}, of_hosts = {.low = 0.94, .high = 1.18};
constexpr std::string_view gpus_of_runs[] = {"A100", "H100"};

/// "B200" of "B200 SXM 180 GB".
std::string short_name(const DeviceSpec& device) { return device.name.substr(0, device.name.find(' ')); }

}  // namespace

std::optional<TimeInterval> interval_of(const SoftwareProfile& profile, const MachineSpec& machine) {
  if (machine.host) return of_hosts;
  if (profile.is_echelon && !profile.borrows_rates) return std::nullopt;
  return of_gpus;
}

std::vector<std::string> without_runs(const RunConfig& config, const MachineSpec& machine,
                                      const SoftwareProfile& profile) {
  if (machine.host) return {};
  const TrainingConfig& t = config.training;
  std::vector<std::string> without;
  if (config.model.mixture.exists()) without.emplace_back("of experts");
  if (config.parallelism.context_parallel_degree > 1) without.emplace_back("of context parallelism");
  if (t.linear_dtype && !profile.computes_in_fp8) without.push_back(fmt::format("in {}", name_of(*t.linear_dtype)));
  if (!is_half_dtype(t.dtype)) without.push_back(fmt::format("in {}", name_of(t.dtype)));
  if (machine.nodes.size() > 1) without.emplace_back("on mixed nodes");
  for (const NodeSpec& node : machine.nodes) {
    const std::string gpu = fmt::format("on {}", short_name(node.device));
    const bool is_known =
        std::ranges::any_of(gpus_of_runs, [&](auto each) { return node.device.name.starts_with(each); });
    if (!is_known && std::ranges::find(without, gpu) == without.end()) without.push_back(gpu);
  }
  return without;
}

}  // namespace echelon
