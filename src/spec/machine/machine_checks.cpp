#include "spec/machine/machine_checks.h"

#include "base/error.h"
#include "spec/machine/machine_fields.h"

#include <algorithm>
#include <functional>

namespace echelon {
namespace {

void check_curve(const CollectiveCurve& curve, const std::string& where) {
  require(!curve.bytes.empty() && curve.bytes.size() == curve.seconds.size(),
          "{}: bytes has {} values, but us has {}; each needs the other", where, curve.bytes.size(),
          curve.seconds.size());
  require(std::adjacent_find(curve.bytes.begin(), curve.bytes.end(), std::greater_equal<>()) == curve.bytes.end(),
          "{}.bytes do not ascend", where);
}

void check_device(const DeviceSpec& device, const std::string& where) {
  for (const auto& [name, rates] : device.formats)
    require(!device.lacks(name), "{}.unsupported_formats names '{}', which formats.{} has rates for; keep one of them",
            where, name, name);
  const auto in_gib = [](std::int64_t bytes) { return static_cast<double>(bytes) / gib; };
  require(device.reserved_bytes < device.memory_bytes,
          "{}.reserved_gib = {:.6g} leaves nothing of memory_gib = {:.6g} (use {:.6g})", where,
          in_gib(device.reserved_bytes), in_gib(device.memory_bytes), std::min(1.0, in_gib(device.memory_bytes) / 2));
}

}  // namespace

void check(const MachineSpec& machine, const std::string& origin) {
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    const NodeSpec& node = machine.nodes[i];
    const std::string where = fmt::format("{}: node[{}]", origin, i);
    check_device(node.device, where + ".device");
    require(node.num_devices == 1 || node.link.bandwidth > 0 || !node.link.measured.empty(),
            "{}.link.bandwidth_gb_per_s is missing: {} devices of a node reach each other somehow", where,
            node.num_devices);
    require(node.count > 0 || i + 1 == machine.nodes.size(),
            "{}.count = 0 means as many as requested, which only the last kind of node may have", where);
    require((node.num_nics == 0) == (node.nic_bandwidth == 0),
            "{}.num_nics = {}, but nic_gbit_per_s = {}; give both or none", where, node.num_nics,
            node.nic_bandwidth / unit::gbit);
    for (std::size_t j = 0; j < node.link.measured.size(); ++j)
      check_curve(node.link.measured[j], fmt::format("{}.link.measured[{}]", where, j));
  }
}

}  // namespace echelon
