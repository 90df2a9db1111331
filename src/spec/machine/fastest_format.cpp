#include "spec/machine/fastest_format.h"

#include "base/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace echelon {
namespace {

/// Measured rates of a format without instructions of its own scatter around those of float32, which is more exact.
constexpr double least_gain = 1.1;

double rate_of(const FormatRates& rates) {
  double fastest = 0;
  for (const MatmulPoint& point : rates.points) fastest = std::max(fastest, point.flops);
  return fastest > 0 ? fastest : rates.peak_flops;
}

/// A host whose matmuls were measured has no rates of formats that were not.
bool is_measured(const DeviceSpec& device) {
  return std::any_of(device.formats.begin(), device.formats.end(),
                     [](const auto& format) { return !format.second.points.empty(); });
}

/// Of the slowest device; 0 if one has no rates of the format.
double rate_of(const MachineSpec& machine, DType dtype) {
  double slowest = std::numeric_limits<double>::infinity();
  for (const NodeSpec& node : machine.nodes) {
    const auto found = node.device.formats.find(name_of(dtype));
    const bool is_there = found != node.device.formats.end() &&
                          !(machine.host && is_measured(node.device) && found->second.points.empty());
    slowest = std::min(slowest, is_there ? rate_of(found->second) : 0);
  }
  return slowest;
}

/// "node 'old' has float32, float16; node 'new' has bfloat16".
std::string formats_by_node(const MachineSpec& machine) {
  std::vector<std::string> parts;
  for (const NodeSpec& node : machine.nodes) {
    MachineSpec alone = machine;
    alone.nodes = {node};
    std::vector<std::string_view> names;
    for (const DType dtype : formats_by_speed(alone)) names.push_back(name_of(dtype));
    parts.push_back(
        fmt::format("node '{}' has {}", node.name, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

/// Fewer devices that have a format in common, or one that the other nodes lack.
std::string way_out(const MachineSpec& machine) {
  MachineSpec fewer = machine;
  while (fewer.nodes.size() > 1) {
    fewer.nodes.pop_back();
    const std::vector<DType> common = formats_by_speed(fewer);
    if (const auto devices = fewer.num_devices(); devices && !common.empty())
      return fmt::format("use --gpus={}, or add [node.device.formats.{}] to node '{}'", *devices,
                         name_of(common.front()), machine.nodes[fewer.nodes.size()].name);
  }
  return "add [node.device.formats.bfloat16]";
}

}  // namespace

std::vector<DType> formats_by_speed(const MachineSpec& machine) {
  const double of_float32 = rate_of(machine, DType::float32);
  std::vector<std::pair<double, DType>> rates;
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    const double rate = rate_of(machine, dtype);
    if (rate > 0) rates.emplace_back(rate < least_gain * of_float32 ? std::min(rate, of_float32) : rate, dtype);
  }
  std::stable_sort(rates.begin(), rates.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<DType> formats;
  for (const auto& [rate, dtype] : rates) formats.push_back(dtype);
  if (rate_of(machine, DType::float64) > 0) formats.push_back(DType::float64);
  return formats;
}

DType fastest_format(const MachineSpec& machine) {
  const std::vector<DType> formats = formats_by_speed(machine);
  require(!formats.empty(), "the devices of '{}' have no format of training.dtype in common: {} ({})", machine.name,
          formats_by_node(machine), way_out(machine));
  return formats.front();
}

void require_format(const MachineSpec& machine, DType dtype) {
  for (const NodeSpec& node : machine.nodes) {
    if (node.device.formats.contains(name_of(dtype))) continue;
    const std::vector<DType> common = formats_by_speed(machine);
    throw Error(fmt::format("training.dtype = '{}': the devices of node '{}' have no rates for it ({})", name_of(dtype),
                            node.name,
                            common.empty() ? way_out(machine) : fmt::format("use {}", name_of(common.front()))));
  }
}

}  // namespace echelon
