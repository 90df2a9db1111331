#include "spec/machine/machine_spec.h"

#include "base/error.h"
#include "base/text/similar.h"
#include "base/text_file.h"
#include "spec/machine/shipped_machines.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <numeric>

namespace echelon {
namespace {

std::string machine_text(const std::string& path) {
  std::optional<std::string> text = read_text_file(path);
  require(text.has_value(), "the machine file '{}' cannot be read", path);
  return *std::move(text);
}

}  // namespace

std::string_view name_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::all_to_all: return "all_to_all";
    case LinkKind::ring: return "ring";
    case LinkKind::shared_memory: return "shared_memory";
  }
  return "";
}

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::all_gather: return "all_gather";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_to_all: return "all_to_all";
    case Collective::broadcast: return "broadcast";
    case Collective::transfer: return "transfer";
    case Collective::barrier: return "barrier";
  }
  return "";
}

bool DeviceSpec::lacks(std::string_view format) const {
  return std::find(unsupported_formats.begin(), unsupported_formats.end(), format) != unsupported_formats.end();
}

std::optional<std::int64_t> MachineSpec::num_devices() const {
  if (std::any_of(nodes.begin(), nodes.end(), [](const NodeSpec& node) { return node.count == 0; }))
    return std::nullopt;
  return std::accumulate(nodes.begin(), nodes.end(), std::int64_t{0},
                         [](std::int64_t sum, const NodeSpec& node) { return sum + node.count * node.num_devices; });
}

MachineSpec MachineSpec::reached_by(std::int64_t num_wanted) const {
  MachineSpec reached = *this;
  std::int64_t before = 0;
  for (std::size_t kind = 0; kind < nodes.size(); ++kind) {
    before += nodes[kind].count * nodes[kind].num_devices;
    if (nodes[kind].count != 0 && before < num_wanted) continue;
    reached.nodes.resize(kind + 1);
    break;
  }
  return reached;
}

namespace {

/// The longest name in what was asked for, such as h100 in DGX-H100, or a similar one with the same first letter: gb300
/// is no MI300.
std::string suggested_machine(const std::string& lower, const std::vector<std::string_view>& names) {
  std::string_view longest;
  for (const std::string_view name : names)
    if (lower.find(name) != std::string::npos && name.size() > longest.size()) longest = name;
  if (!longest.empty()) return std::string(longest);
  const std::string close = similar(lower, names);
  return close.substr(0, 1) == lower.substr(0, 1) ? close : "";
}

}  // namespace

MachineSpec read_machine(const std::string& name_or_path) {
  std::vector<std::string_view> names;
  std::string lower = name_or_path;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool is_file = std::filesystem::is_regular_file(name_or_path);
  for (const ShippedMachine& each : shipped_machines()) {
    if (each.name == name_or_path || (each.name == lower && !is_file))
      return parse_machine(each.text, fmt::format("machines/{}.toml", each.name));
    names.push_back(each.name);
  }
  const std::string suggested = is_file ? "" : suggested_machine(lower, names);
  require(is_file,
          "the machine '{}' is neither a file nor one of {}{} (docs/reference/machines.md has the format of files)",
          name_or_path, fmt::join(names, ", "), suggested.empty() ? "" : fmt::format("; did you mean {}?", suggested));
  return is_host_file(name_or_path) ? machine_of(read_host(name_or_path))
                                    : parse_machine(machine_text(name_or_path), name_or_path);
}

}  // namespace echelon
