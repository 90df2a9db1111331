#include "spec/machine_spec.h"

#include "base/error.h"
#include "spec/choice.h"

#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

namespace echelon {
namespace {

constexpr LinkKind link_kinds[] = {LinkKind::all_to_all, LinkKind::ring, LinkKind::shared_memory};

/// A table of which every key is asked for by name; what nobody asked for is unknown.
class Table {
 public:
  Table(const toml::table& table, std::string where) : table_(&table), where_(std::move(where)) {}

  void take(std::string_view key, double& value) {
    if (const toml::node* node = find(key)) {
      const auto found = node->value<double>();
      require(found.has_value() && *found >= 0, "{}{} is no number of 0 or above", where_, key);
      value = *found;
    }
  }
  void take(std::string_view key, std::int64_t& value) {
    if (const toml::node* node = find(key)) {
      const auto found = node->value<std::int64_t>();
      require(found.has_value() && *found >= 0, "{}{} is no whole number of 0 or above", where_, key);
      value = *found;
    }
  }
  void take(std::string_view key, std::string& value) {
    if (const toml::node* node = find(key)) {
      const auto found = node->value<std::string>();
      require(found.has_value(), "{}{} is no text", where_, key);
      value = *found;
    }
  }
  void take(std::string_view key, bool& value) {
    if (const toml::node* node = find(key)) {
      const auto found = node->value<bool>();
      require(found.has_value(), "{}{} is neither true nor false", where_, key);
      value = *found;
    }
  }
  void take(std::string_view key, LinkKind& value) {
    std::string name(name_of(value));
    take(key, name);
    value = parse_choice(where_ + std::string(key), name, link_kinds);
  }

  [[nodiscard]] Table table(std::string_view key) {
    const toml::node* node = find(key);
    require(node != nullptr && node->is_table(), "{}{} is missing; it is a table", where_, key);
    return {*node->as_table(), fmt::format("{}{}.", where_, key)};
  }
  [[nodiscard]] bool has(std::string_view key) { return find(key) != nullptr; }
  [[nodiscard]] std::vector<Table> tables(std::string_view key) {
    std::vector<Table> all;
    const toml::node* node = find(key);
    require(node != nullptr && node->is_array(), "{}{} is missing; it is a list of tables", where_, key);
    for (const toml::node& each : *node->as_array()) {
      require(each.is_table(), "{}{} is a list of something else than tables", where_, key);
      all.emplace_back(*each.as_table(), fmt::format("{}{}[{}].", where_, key, all.size()));
    }
    return all;
  }
  [[nodiscard]] std::vector<std::string> keys() const {
    std::vector<std::string> all;
    for (const auto& [key, node] : *table_) all.emplace_back(key.str());
    return all;
  }

  /// Call it when everything was asked for.
  void check_known() const {
    const std::vector<std::string_view> names(asked_.begin(), asked_.end());
    for (const auto& [key, node] : *table_)
      require(std::find(names.begin(), names.end(), key.str()) != names.end(), "{}{}: there is no such key; nearest: {}", where_, key.str(),
              nearest(std::string(key.str()), names));
  }

 private:
  const toml::node* find(std::string_view key) {
    asked_.emplace_back(key);
    return table_->get(key);
  }

  const toml::table* table_;
  std::string where_;  // "file: node[0].device."
  std::vector<std::string> asked_;
};

MatmulCurve read_curve(Table table) {
  MatmulCurve curve;
  table.take("efficiency", curve.efficiency);
  table.take("half_m", curve.half_m);
  table.take("half_n", curve.half_n);
  table.take("half_k", curve.half_k);
  table.check_known();
  return curve;
}

FormatRates read_format(Table table) {
  FormatRates rates;
  table.take("peak_flops", rates.peak_flops);
  table.take("attention_efficiency", rates.attention_efficiency);
  if (table.has("matmul")) rates.matmul = read_curve(table.table("matmul"));
  if (table.has("points")) {
    for (Table each : table.tables("points")) {
      MatmulPoint point;
      each.take("m", point.m);
      each.take("n", point.n);
      each.take("k", point.k);
      each.take("flops", point.flops);
      each.check_known();
      rates.points.push_back(point);
    }
  }
  table.check_known();
  return rates;
}

DeviceSpec read_device(Table table) {
  DeviceSpec device;
  table.take("name", device.name);
  table.take("memory_bytes", device.memory_bytes);
  table.take("memory_bandwidth", device.memory_bandwidth);
  table.take("memory_efficiency", device.memory_efficiency);
  table.take("vector_flops", device.vector_flops);
  table.take("operation_seconds", device.operation_seconds);
  Table formats = table.table("formats");
  for (const std::string& name : formats.keys()) device.formats[name] = read_format(formats.table(name));
  table.check_known();
  return device;
}

NodeLink read_link(Table table) {
  NodeLink link;
  table.take("kind", link.kind);
  table.take("bandwidth", link.bandwidth);
  table.take("efficiency", link.efficiency);
  table.take("latency_seconds", link.latency_seconds);
  table.take("reduces_in_switch", link.reduces_in_switch);
  table.check_known();
  return link;
}

NodeSpec read_node(Table table) {
  NodeSpec node;
  table.take("name", node.name);
  table.take("count", node.count);
  table.take("num_devices", node.num_devices);
  table.take("num_nics", node.num_nics);
  table.take("nic_bandwidth", node.nic_bandwidth);
  table.take("price_per_device_hour", node.price_per_device_hour);
  node.device = read_device(table.table("device"));
  node.link = read_link(table.table("link"));
  table.check_known();
  return node;
}

NetworkSpec read_network(Table table) {
  NetworkSpec network;
  table.take("latency_seconds", network.latency_seconds);
  table.take("efficiency", network.efficiency);
  table.take("oversubscription", network.oversubscription);
  table.take("nodes_per_leaf", network.nodes_per_leaf);
  table.check_known();
  return network;
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

std::optional<std::int64_t> MachineSpec::num_devices() const {
  if (std::any_of(nodes.begin(), nodes.end(), [](const NodeSpec& node) { return node.count == 0; })) return std::nullopt;
  return std::accumulate(nodes.begin(), nodes.end(), std::int64_t{0},
                         [](std::int64_t sum, const NodeSpec& node) { return sum + node.count * node.num_devices; });
}

MachineSpec read_machine(const std::string& path) {
  require(std::filesystem::is_regular_file(path), "the machine file '{}' cannot be read; check the path", path);
  try {
    const toml::table file = toml::parse_file(path);
    Table table(file, path + ": ");
    MachineSpec machine;
    table.take("name", machine.name);
    table.take("source", machine.source);
    for (Table node : table.tables("node")) machine.nodes.push_back(read_node(node));
    if (table.has("network")) machine.network = read_network(table.table("network"));
    table.check_known();
    return machine;
  } catch (const toml::parse_error& error) {
    throw Error(fmt::format("{}:{}: {}", path, error.source().begin.line, error.description()));
  }
}

}  // namespace echelon
