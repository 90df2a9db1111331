#include "predict/published/promise.h"

#include "base/units.h"
#include "predict/published/best_published.h"
#include "predict/software/interval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace echelon {
namespace {

/// Utilisations are published for 16 bits.
bool is_comparable(const RunConfig& config, const MachineSpec& machine) {
  return !machine.host && is_half_dtype(config.training.dtype);
}

/// The best of the size; none if there is none that can be compared.
std::optional<BestPublished> published_at(const RunConfig& config, const MachineSpec& machine) {
  if (!is_comparable(config, machine)) return std::nullopt;
  return best_published_at(machine.nodes.front().device, static_cast<double>(config.model.num_parameters()));
}

struct TimeUnit {
  double seconds = 1;
  const char* name = "s";
};

TimeUnit unit_of(double seconds) { return seconds < 1 ? TimeUnit{1e-3, "ms"} : TimeUnit(); }

/// ", estimated without runs of experts, in float8 or on B200"; empty where runs were like this one.
std::string no_run_text(const RunConfig& config, const MachineSpec& machine, const SoftwareProfile& profile) {
  if (!interval_of(profile, machine)) return "";
  const std::vector<std::string> without = without_runs(config, machine, profile);
  if (without.empty()) return "";
  std::string text = ", estimated without runs " + without.front();
  for (std::size_t i = 1; i < without.size(); ++i) text += (i + 1 < without.size() ? ", " : " or ") + without[i];
  return text;
}

/// With as many digits as an interval of some percent is worth.
std::string rounded(double seconds) {
  const int decimals = 1 - static_cast<int>(std::floor(std::log10(seconds)));
  const double scale = std::pow(10, decimals);
  return fmt::format("{:.{}f}", std::round(seconds * scale) / scale, std::max(0, decimals));
}

}  // namespace

std::string mfu_share_text(const RunConfig& config) {
  if (!config.training.linear_dtype) return "";
  return fmt::format(" of {}'s peak", name_of(config.training.dtype));
}

SecondsRange seconds_range(const Simulation& result, const MachineSpec& machine, const SoftwareProfile& profile) {
  const TimeInterval interval = interval_of(profile, machine).value_or(TimeInterval());
  return {.low = result.step_seconds * interval.low, .high = result.step_seconds * interval.high};
}

std::string promise_text(const Simulation& result, const RunConfig& config, const MachineSpec& machine,
                         const SoftwareProfile& profile) {
  const TimeUnit unit = unit_of(result.step_seconds);
  const SecondsRange range = seconds_range(result, machine, profile);
  std::string text = fmt::format("{:.3g} {} (", result.step_seconds / unit.seconds, unit.name);
  if (range.low < range.high)
    text += fmt::format("{} to {}{}", rounded(range.low / unit.seconds), rounded(range.high / unit.seconds),
                        no_run_text(config, machine, profile));
  else
    text += "a bound, which no software reaches";
  if (result.peak_flops > 0) text += fmt::format("; {:.0f} % MFU{}", 100 * result.mfu(), mfu_share_text(config));
  if (const auto best = published_at(config, machine))
    text += fmt::format("; best published on {} at this size: {:.0f} %", best->gpu, 100 * best->mfu);
  return text + ")";
}

std::string range_text(const Simulation& result, const RunConfig& config, const MachineSpec& machine,
                       const SoftwareProfile& profile) {
  const TimeUnit unit = unit_of(result.step_seconds);
  const SecondsRange range = seconds_range(result, machine, profile);
  std::string text;
  if (range.low < range.high)
    text = fmt::format("{} to {} {}", rounded(range.low / unit.seconds), rounded(range.high / unit.seconds), unit.name);
  if (result.peak_flops > 0)
    text += fmt::format("{}{:.0f} % MFU{}", text.empty() ? "" : ", ", 100 * result.mfu(), mfu_share_text(config));
  return text;
}

std::string without_runs_text(const RunConfig& config, const MachineSpec& machine, const SoftwareProfile& profile) {
  const std::string text = no_run_text(config, machine, profile);
  return text.empty() ? "" : "the interval is" + text.substr(1);
}

nlohmann::ordered_json promise_json(const Simulation& result, const RunConfig& config, const MachineSpec& machine,
                                    const SoftwareProfile& profile) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  const SecondsRange range = seconds_range(result, machine, profile);
  if (range.low < range.high) {
    json["interval_seconds"] = {range.low, range.high};
    if (const auto without = without_runs(config, machine, profile); !without.empty())
      json["interval_without_runs"] = without;
  }
  if (const auto best = published_at(config, machine))
    json["best_published"] = {{"mfu", 100 * best->mfu}, {"gpu", best->gpu}, {"source", best->source}};
  if (const std::string warning = warning_of(result, config, machine); !warning.empty()) json["warning"] = warning;
  if (const std::string warning = fullness_of(result); !warning.empty()) json["memory_warning"] = warning;
  return json;
}

std::string fullness_of(const Simulation& result) {
  constexpr double usual = 0.97;
  if (result.memory.empty() || !result.fits() || result.least_room().share() <= usual) return "";
  const PredictedMemory& highest = result.least_room();
  return fmt::format("the device with the highest memory use has {:.2f} of {:.2f} GiB ({:.1f} %)",
                     static_cast<double>(highest.arena_bytes) / gib, static_cast<double>(highest.device_bytes) / gib,
                     100 * highest.share());
}

std::string warning_of(const Simulation& result, const RunConfig& config, const MachineSpec& machine) {
  if (!is_comparable(config, machine)) return "";
  const auto of_size = published_at(config, machine),
             best = of_size ? of_size : best_published(machine.nodes.front().device);
  if (!best || result.mfu() <= best->mfu) return "";
  return fmt::format("{:.0f} % MFU is above the best published on {}{}: {:.0f} % ({})", 100 * result.mfu(), best->gpu,
                     of_size ? " at this size" : "", 100 * best->mfu, best->source);
}

}  // namespace echelon
