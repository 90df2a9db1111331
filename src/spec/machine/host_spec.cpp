#include "spec/machine/host_spec.h"

#include "base/error.h"

#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <variant>
#include <vector>

namespace echelon {
namespace {

using Field = std::variant<double*, std::int64_t*, std::string*>;

/// "device.float32_flops" and a reference to its value: one list for reading and writing.
std::vector<std::pair<std::string, Field>> fields_of(HostSpec& machine) {
  std::vector<std::pair<std::string, Field>> fields = {{"machine.processor", &machine.processor},
                                                       {"machine.num_cores", &machine.num_cores},
                                                       {"machine.memory_bytes", &machine.memory_bytes}};
  for (const auto& [table, rates] : {std::pair{"device", &machine.device},
                                     {"core", &machine.core},
                                     {"device_spread", &machine.device_spread},
                                     {"core_spread", &machine.core_spread}})
    for (const auto& [name, value] : {std::pair{"float32_flops", &rates->float32_flops},
                                      {"float64_flops", &rates->float64_flops},
                                      {"bfloat16_flops", &rates->bfloat16_flops},
                                      {"sgemm_flops", &rates->sgemm_flops},
                                      {"attention_float32_flops", &rates->attention_float32_flops},
                                      {"attention_bfloat16_flops", &rates->attention_bfloat16_flops},
                                      {"copy_bandwidth", &rates->copy_bandwidth},
                                      {"triad_bandwidth", &rates->triad_bandwidth},
                                      {"read_bandwidth", &rates->read_bandwidth}})
      fields.emplace_back(fmt::format("{}.{}", table, name), value);
  fields.emplace_back("threads.all_reduce_latency_seconds", &machine.all_reduce_latency_seconds);
  fields.emplace_back("threads.all_reduce_bandwidth", &machine.all_reduce_bandwidth);
  fields.emplace_back("threads.all_reduce_latency_spread", &machine.all_reduce_latency_spread);
  fields.emplace_back("threads.all_reduce_bandwidth_spread", &machine.all_reduce_bandwidth_spread);
  for (const auto& [name, value] : {std::pair{"write_bandwidth", &machine.disk.write_bandwidth},
                                    {"read_bandwidth", &machine.disk.read_bandwidth},
                                    {"write_core_bandwidth", &machine.disk.write_core_bandwidth},
                                    {"sync_seconds", &machine.disk.sync_seconds}})
    fields.emplace_back(fmt::format("disk.{}", name), value);
  return fields;
}

/// A machine file has these if a folder was named.
bool is_of_disk(std::string_view name) { return name.starts_with("disk."); }

/// Machine files did not always have these.
bool is_of_attention(std::string_view name) { return name.find(".attention_") != std::string_view::npos; }

/// A machine file has these if its rates were measured in rounds.
bool is_spread(std::string_view name) { return name.find("_spread") != std::string_view::npos; }
bool has_spread(const HostSpec& machine) { return machine.device_spread != ComputeRates(); }

toml::table parse(const std::string& path) {
  require(std::filesystem::is_regular_file(path),
          "the machine file '{}' cannot be read; echelon bench --output {} makes it", path, path);
  try {
    return toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    throw Error(fmt::format("{}:{}: {}", path, error.source().begin.line, error.description()));
  }
}

template <class T>
void take(const toml::node_view<const toml::node>& node, T& value, const std::string& where) {
  const auto found = node.value<T>();
  require(found.has_value(), "{} is not {}", where, std::is_same_v<T, std::string> ? "text" : "a number");
  value = *found;
  if constexpr (std::is_same_v<T, double>)
    require(std::isfinite(value), "{} = {} is not a finite number", where, value);
  if constexpr (!std::is_same_v<T, std::string>) {
    const T least = where.ends_with("machine.num_cores") ? 1 : 0;
    require(value >= least, "{} = {} is below {} (use {})", where, value, least, least);
  }
}

void check_known(const toml::table& file, const std::string& path, const std::vector<std::string_view>& names) {
  for (const auto& [table, node] : file) {
    if (table == "operations" || table == "distances" || table == "collectives" || table == "products") continue;
    require(node.is_table(), "{}: the key '{}' is outside a table", path, table.str());
    for (const auto& [key, value] : *node.as_table()) {
      const std::string name = fmt::format("{}.{}", table.str(), key.str());
      require(std::find(names.begin(), names.end(), name) != names.end(), "{}: there is no key {}; did you mean {}?",
              path, name, closest_name(name, names));
    }
  }
}

// --- lists of points: [operations.matmul] float32 = [[m, n, k, flops, seconds, seconds, seconds], ...] ---

using Numbers = std::vector<double>;

Numbers numbers_of(const OperationPoint& p) {
  return {static_cast<double>(p.m), static_cast<double>(p.n), static_cast<double>(p.k), p.amount,
          p.core_seconds,           p.busy_seconds,           p.shared_seconds};
}
Numbers numbers_of(const DistancePoint& p) {
  return {static_cast<double>(p.distance), p.busy_seconds, p.shared_seconds};
}
Numbers numbers_of(const CollectivePoint& p) {
  return {static_cast<double>(p.num_ranks), static_cast<double>(p.bytes), p.seconds};
}

void set(OperationPoint& p, const Numbers& v) {
  p = {static_cast<std::int64_t>(v[0]),
       static_cast<std::int64_t>(v[1]),
       static_cast<std::int64_t>(v[2]),
       v[3],
       v[4],
       v[5],
       v[6]};
}
void set(DistancePoint& p, const Numbers& v) { p = {static_cast<std::int64_t>(v[0]), v[1], v[2]}; }
void set(CollectivePoint& p, const Numbers& v) {
  p = {static_cast<std::int64_t>(v[0]), static_cast<std::int64_t>(v[1]), v[2]};
}

/// Sizes are whole numbers. Four digits of seconds exceed the precision of measurements.
std::string to_text(double value) { return value >= 1 ? fmt::format("{:.0f}", value) : fmt::format("{:.3e}", value); }

template <class Point>
std::string tables_to_toml(std::string_view name,
                           const std::map<std::string, std::map<std::string, std::vector<Point>>>& tables) {
  std::string text;
  for (const auto& [table, lists] : tables) {
    text += fmt::format("\n[{}.{}]\n", name, table);
    for (const auto& [key, points] : lists) {
      text += key + " = [\n";
      for (const Point& point : points) {
        std::vector<std::string> words;
        for (const double number : numbers_of(point)) words.push_back(to_text(number));
        text += fmt::format("  [{}],\n", fmt::join(words, ", "));
      }
      text += "]\n";
    }
  }
  return text;
}

template <class Point>
std::vector<Point> read_points(const toml::node& list, const std::string& where) {
  require(list.is_array(), "{} is not a list", where);
  const std::size_t length = numbers_of(Point()).size();
  std::vector<Point> points;
  for (const toml::node& row : *list.as_array()) {
    const toml::array* columns = row.as_array();
    require(columns != nullptr && columns->size() == length, "{}[{}] is not a list of {} values", where, points.size(),
            length);
    Numbers numbers;
    for (const toml::node& column : *columns) {
      const auto number = column.value<double>();
      require(number.has_value() && *number > 0 && std::isfinite(*number), "{}[{}]: every number is above 0", where,
              points.size());
      numbers.push_back(*number);
    }
    set(points.emplace_back(), numbers);
  }
  require(!points.empty(), "{} is empty; omit it", where);
  return points;
}

template <class Point>
void read_tables(const toml::table& file, const std::string& path, std::string_view name,
                 std::map<std::string, std::map<std::string, std::vector<Point>>>& tables) {
  const toml::table* all = file[name].as_table();
  if (all == nullptr) return;
  for (const auto& [table, lists] : *all) {
    require(lists.is_table(), "{}: {}.{} is not a table", path, name, table.str());
    for (const auto& [key, list] : *lists.as_table())
      tables[std::string(table.str())][std::string(key.str())] =
          read_points<Point>(list, fmt::format("{}: {}.{}.{}", path, name, table.str(), key.str()));
  }
}

std::string products_to_toml(const std::map<std::string, std::string>& products) {
  std::string text = products.empty() ? "" : fmt::format("\n[{}]\n", "products");
  for (const auto& [key, value] : products) text += fmt::format("{} = \"{}\"\n", key, value);
  return text;
}

std::map<std::string, std::string> read_products(const toml::table& file, const std::string& path) {
  static constexpr std::string_view keys[] = {"kind", "float32", "float64", "bfloat16", "float16"};
  std::map<std::string, std::string> products;
  constexpr std::string_view name = "products";
  const toml::table* table = file[name].as_table();
  require(table != nullptr || !file.contains(name), "{}: {} is not a table", path, name);
  if (table == nullptr) return products;
  for (const auto& [key, value] : *table) {
    require(std::find(std::begin(keys), std::end(keys), key.str()) != std::end(keys),
            "{}: there is no key {}.{}; did you mean {}.{}?", path, name, key.str(), name,
            closest_name(key.str(), keys));
    require(value.is_string(), "{}: {}.{} is not text", path, name, key.str());
    products[std::string(key.str())] = value.as_string()->get();
  }
  return products;
}

}  // namespace

std::optional<double> ComputeRates::peak_flops(std::string_view dtype) const {
  const double peak = dtype == "float64"    ? float64_flops
                      : dtype == "bfloat16" ? std::max(bfloat16_flops, float32_flops)
                                            : float32_flops;
  return peak > 0 ? std::optional(peak) : std::nullopt;
}

double ComputeRates::memory_bandwidth() const { return std::max({copy_bandwidth, triad_bandwidth, read_bandwidth}); }

ComputeRates operator*(const ComputeRates& rates, double factor) {
  HostSpec machine;
  machine.device = rates;
  for (auto& [name, field] : fields_of(machine))
    if (name.starts_with("device.")) *std::get<double*>(field) *= factor;
  return machine.device;
}

std::string to_toml(const HostSpec& machine) {
  HostSpec copy = machine;
  std::string text, table;
  for (const auto& [name, field] : fields_of(copy)) {
    const std::size_t dot = name.find('.');
    if (is_of_disk(name) && !machine.disk.is_known()) continue;
    if (is_spread(name) && !has_spread(machine)) continue;
    if (name.substr(0, dot) != table) {
      text += fmt::format("{}[{}]\n", table.empty() ? "" : "\n", name.substr(0, dot));
      table = name.substr(0, dot);
    }
    const std::string key = name.substr(dot + 1);
    if (const auto* const* number = std::get_if<double*>(&field)) text += fmt::format("{} = {:.4e}\n", key, **number);
    if (const auto* const* whole = std::get_if<std::int64_t*>(&field)) text += fmt::format("{} = {}\n", key, **whole);
    if (const auto* const* words = std::get_if<std::string*>(&field))
      text += fmt::format("{} = \"{}\"\n", key, **words);
  }
  return text + products_to_toml(machine.products) + tables_to_toml("operations", machine.operations) +
         tables_to_toml("distances", machine.distances) + tables_to_toml("collectives", machine.collectives);
}

bool is_host_file(const std::string& path) { return parse(path).contains("machine"); }

HostSpec read_host(const std::string& path) {
  const toml::table file = parse(path);
  HostSpec machine;
  std::vector<std::string_view> names;
  const auto fields = fields_of(machine);
  for (const auto& [name, field] : fields) names.push_back(name);
  check_known(file, path, names);
  for (const auto& [name, field] : fields) {
    const auto node = file.at_path(name);
    if (is_of_disk(name) && !file.contains("disk")) continue;
    if ((is_spread(name) || is_of_attention(name)) && !node) continue;
    require(static_cast<bool>(node), "{}: {} is missing; echelon bench --output {} writes it", path, name, path);
    std::visit([&, key = &name](auto* value) { take(node, *value, fmt::format("{}: {}", path, *key)); }, field);
  }
  machine.products = read_products(file, path);
  read_tables(file, path, "operations", machine.operations);
  read_tables(file, path, "distances", machine.distances);
  read_tables(file, path, "collectives", machine.collectives);
  return machine;
}

}  // namespace echelon
