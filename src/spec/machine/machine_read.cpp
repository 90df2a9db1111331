// The text of a machine file -> MachineSpec.
#include "base/error.h"
#include "base/text/printable.h"
#include "spec/choice.h"
#include "spec/machine/machine_checks.h"
#include "spec/machine/machine_fields.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <sstream>

namespace echelon {
namespace {

constexpr LinkKind link_kinds[] = {LinkKind::all_to_all, LinkKind::ring, LinkKind::shared_memory};
constexpr Collective collectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                      Collective::all_to_all, Collective::broadcast,  Collective::transfer,
                                      Collective::barrier};

/// A table whose known keys are read by name; any other key is unknown.
class TableReader {
 public:
  TableReader(const toml::table& table, std::string where) : table_(&table), where_(std::move(where)) {}

  void number(std::string_view key, double& value, double unit = unit::one, FieldRange range = FieldRange::any) {
    if (const toml::node* node = find(key)) value = in_range(key, number_of(key, *node), range) * unit;
    require_given(key, value, range);
  }
  void number(std::string_view key, std::int64_t& value, FieldRange range = FieldRange::any) {
    if (const toml::node* node = find(key)) {
      const auto found = node->value<std::int64_t>();
      require(found.has_value() && node->is_integer(), "{}{} = {} is not a whole number (use {})", where_, key,
              text_of(*node), closest_whole(*node));
      value = static_cast<std::int64_t>(in_range(key, at_most(1e9, key, static_cast<double>(*found)), range));
    }
    require_given(key, static_cast<double>(value), range);
  }
  void bytes(std::string_view key, std::int64_t& value, FieldRange range = FieldRange::any) {
    if (const toml::node* node = find(key)) {
      const double read = in_range(key, at_most(1e6, key, number_of(key, *node)), range);
      value = read > 0 ? std::llround(std::max(read * gib, 1.0)) : 0;
    }
    require_given(key, static_cast<double>(value), range);
  }
  void text(std::string_view key, std::string& value) {
    if (const toml::node* node = find(key)) {
      require(node->is_string(), "{}{} is not text; write it in quotes", where_, key);
      value = printable(node->as_string()->get());
    }
  }
  void flag(std::string_view key, bool& value) {
    if (const toml::node* node = find(key)) {
      require(node->is_boolean(), "{}{} is neither true nor false", where_, key);
      value = node->as_boolean()->get();
    }
  }
  void choice(std::string_view key, LinkKind& value) { choose(key, value, link_kinds); }
  void choice(std::string_view key, Collective& value) { choose(key, value, collectives); }
  void numbers(std::string_view key, std::vector<double>& values, double unit) {
    const toml::node* node = find(key);
    require(node != nullptr && node->is_array(), "{}{} is missing; it is a list of values", where_, key);
    for (const toml::node& each : *node->as_array())
      values.push_back(in_range(key, number_of(key, each), FieldRange::any) * unit);
  }

  template <class Value>
  void table(std::string_view key, Value& value) {
    const toml::node* node = find(key);
    // A machine of one node has no network.
    if (node == nullptr && (std::is_same_v<Value, NetworkSpec> || std::is_same_v<Value, DiskSpec>)) return;
    require(node != nullptr && node->is_table(), "{}{} is missing; it is a table", where_, key);
    if constexpr (std::is_same_v<Value, DeviceSpec>) {
      value.launch_seconds = usual_launch_seconds;
      value.collective_launch_seconds = usual_collective_launch_seconds;
    }
    read(*node->as_table(), fmt::format("{}{}.", where_, key), value);
  }
  template <class Value>
  void inline_table(std::string_view key, Value& value) {
    if (find(key) != nullptr) table(key, value);
  }
  template <class Value>
  void list(std::string_view key, std::vector<Value>& values) {
    const toml::node* node = find(key);
    require(node != nullptr || !std::is_same_v<Value, NodeSpec>,
            "{}[[{}]] is missing: a machine has at least one kind of node", where_, key);
    if (node == nullptr) return;
    require(node->is_array(), "{}{} is not a list of tables", where_, key);
    for (const toml::node& each : *node->as_array()) {
      const std::string where = fmt::format("{}{}[{}].", where_, key, values.size());
      require(each.is_table(), "{} is not a table", where);
      read(*each.as_table(), where, values.emplace_back());
    }
  }
  template <class Value>
  void inline_list(std::string_view key, std::vector<Value>& values) {
    list(key, values);
  }
  void format_names(std::string_view key, std::vector<std::string>& names) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    require(node->is_array(), "{}{} is not a list of formats (example: [\"float8\"])", where_, key);
    for (const toml::node& each : *node->as_array()) {
      require(each.is_string(), "{}{} is not a list of formats (example: [\"float8\"])", where_, key);
      names.push_back(each.as_string()->get());
      require_format(fmt::format("{}{}", where_, key), names.back());
    }
  }
  template <class Formats>
  void formats(std::string_view key, Formats& formats) {
    const toml::node* node = find(key);
    const std::size_t colon = where_.rfind(": ");  // after the file
    require(node != nullptr && node->is_table() && !node->as_table()->empty(), "{}{} is missing (use {}{}.float32)",
            where_, key, colon == std::string::npos ? where_ : where_.substr(colon + 2), key);
    for (const auto& [name, rates] : *node->as_table()) {
      const std::string where = fmt::format("{}{}.{}.", where_, key, name.str());
      require_format(fmt::format("{}{}", where_, key), name.str());
      require(rates.is_table(), "{} is not a table", where);
      read(*rates.as_table(), where, formats[std::string(name.str())]);
    }
  }

  template <class Value>
  static void read(const toml::table& table, std::string where, Value& value) {
    TableReader reader(table, std::move(where));
    visit(reader, value);
    reader.check_known();
  }

 private:
  static void require_format(std::string_view key, std::string_view name) {
    require(std::find(std::begin(echelon::format_names), std::end(echelon::format_names), name) !=
                std::end(echelon::format_names),
            "{}.{}: unknown format; did you mean {}?", key, name, closest_name(name, echelon::format_names));
  }
  const toml::node* find(std::string_view key) {
    asked_.push_back(key);
    return table_->get(key);
  }
  static std::string text_of(const toml::node& node) {
    std::ostringstream text;
    node.visit([&](const auto& value) { text << value; });
    return printable(text.str());
  }
  /// Without its quotes, if it is one.
  static std::string closest_number(const toml::node& node) {
    const std::string text = node.value_or(std::string());
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() && std::isfinite(number) ? text : "1";
  }
  static std::int64_t closest_whole(const toml::node& node) {
    constexpr double most = 1e9;
    const double number = node.is_floating_point() ? *node.value<double>() : std::stod(closest_number(node));
    return std::isnan(number) ? 1 : std::llround(std::clamp(number, 1.0, most));
  }
  double number_of(std::string_view key, const toml::node& node) const {
    const auto found = node.value<double>();
    require(found.has_value() && node.is_number() && !std::isnan(*found), "{}{} = {} is not a number (use {})", where_,
            key, text_of(node), closest_number(node));
    return *found;
  }
  double in_range(std::string_view key, double value, FieldRange range) const {
    const bool may_be_zero = range == FieldRange::any || range == FieldRange::part,
               is_part = range == FieldRange::fraction || range == FieldRange::part;
    require(range != FieldRange::one_or_more || value >= 1, "{}{} = {} is below 1 (use 1)", where_, key, value);
    require(!may_be_zero || value >= 0, "{}{} = {} is below 0 (use 0)", where_, key, value);
    require(may_be_zero || value > 0, "{}{} = {} is impossible; it is above 0", where_, key, value);
    require(!is_part || value <= 1, "{}{} = {} is above 1 (use 1)", where_, key, value);
    return at_most(1e15, key, value);
  }
  /// Larger values are mistakes, and derived values would overflow.
  double at_most(double most, std::string_view key, double value) const {
    require(value <= most, "{}{} = {} is above {} (use {})", where_, key, value, most, most);
    return value;
  }
  void require_given(std::string_view key, double value, FieldRange range) const {
    require(range == FieldRange::any || range == FieldRange::part || value > 0, "{}{} is missing; it has no default",
            where_, key);
  }
  template <class Choice, std::size_t n>
  void choose(std::string_view key, Choice& value, const Choice (&choices)[n]) {
    std::string name(name_of(value));
    text(key, name);
    value = parse_choice(where_ + std::string(key), name, choices);
  }
  void check_known() const {
    for (const auto& [key, node] : *table_)
      require(std::find(asked_.begin(), asked_.end(), key.str()) != asked_.end(), "{}{}: unknown key; did you mean {}?",
              where_, key.str(), closest_name(key.str(), asked_));
  }

  const toml::table* table_;
  std::string where_;  // "file: node[0].device."
  std::vector<std::string_view> asked_;
};

}  // namespace

MachineSpec parse_machine(std::string_view text, const std::string& origin) {
  try {
    MachineSpec machine;
    TableReader::read(toml::parse(text), origin + ": ", machine);
    if (machine.name.empty()) machine.name = std::filesystem::path(origin).stem().string();
    check(machine, origin);
    return machine;
  } catch (const toml::parse_error& error) {
    throw Error(fmt::format("{}:{}: {}", origin, error.source().begin.line, error.description()));
  }
}

}  // namespace echelon
