// MachineSpec -> the text of a machine file. Values that are 0, false or empty are omitted.
#include "spec/config/config_value.h"
#include "spec/machine/machine_fields.h"

#include <fmt/format.h>

#include <charconv>

namespace echelon {
namespace {

/// The shortest decimal that gives `value` when it is read and multiplied by `unit`.
std::string text_of(double value, double unit) {
  std::string text;
  for (int digits = 1; digits <= 17; ++digits) {
    text = fmt::format("{:.{}g}", value / unit, digits);
    double again = 0;
    std::from_chars(text.data(), text.data() + text.size(), again);
    if (again * unit == value) break;
  }
  return text;
}

class Writer {
 public:
  explicit Writer(std::string path) : path_(std::move(path)) {}

  void number(std::string_view key, double& value, double unit = unit::one, FieldRange /*range*/ = FieldRange::any) {
    if (value != 0) scalar(key, text_of(value, unit));
  }
  void number(std::string_view key, std::int64_t& value, FieldRange /*range*/ = FieldRange::any) {
    if (value != 0) scalar(key, std::to_string(value));
  }
  void bytes(std::string_view key, std::int64_t& value, FieldRange /*range*/ = FieldRange::any) {
    if (value != 0) scalar(key, text_of(static_cast<double>(value), gib));
  }
  void text(std::string_view key, std::string& value) {
    if (!value.empty()) scalar(key, echelon::to_toml(ConfigValue(value)));
  }
  void flag(std::string_view key, bool& value) {
    if (value) scalar(key, "true");
  }
  template <class Choice>
  void choice(std::string_view key, Choice& value) {
    scalar(key, echelon::to_toml(ConfigValue(std::string(name_of(value)))));
  }
  void numbers(std::string_view key, std::vector<double>& values, double unit) {
    std::vector<std::string> texts;
    texts.reserve(values.size());
    for (const double value : values) texts.push_back(text_of(value, unit));
    scalar(key, fmt::format("[{}]", fmt::join(texts, ", ")));
  }
  template <class Value>
  void inline_table(std::string_view key, Value& value) {
    if (value != Value{}) scalar(key, in_line(value));
  }
  template <class Value>
  void inline_list(std::string_view key, std::vector<Value>& values) {
    if (values.empty()) return;
    std::string lines;
    for (Value& value : values) lines += "  " + in_line(value) + ",\n";
    scalar(key, "[\n" + lines + "]");
  }

  template <class Value>
  void table(std::string_view key, Value& value) {
    if (value != Value{}) below(key, "[", value, "]");
  }
  template <class Value>
  void list(std::string_view key, std::vector<Value>& values) {
    for (Value& value : values) below(key, "[[", value, "]]");
  }
  void format_names(std::string_view key, std::vector<std::string>& names) {
    if (!names.empty()) scalar(key, fmt::format("[\"{}\"]", fmt::join(names, "\", \"")));
  }
  template <class Formats>
  void formats(std::string_view key, Formats& formats) {
    for (auto& [name, rates] : formats) below(fmt::format("{}.{}", key, name), "[", rates, "]");
  }

  template <class Value>
  static std::string text_of_table(std::string path, Value& value) {
    Writer writer(std::move(path));
    visit(writer, value);
    return fmt::format("{}{}", fmt::join(writer.scalars_, ""), writer.tables_);
  }

 private:
  void scalar(std::string_view key, const std::string& text) {
    scalars_.push_back(fmt::format("{} = {}\n", key, text));
  }

  template <class Value>
  static std::string in_line(Value& value) {
    Writer writer("");
    visit(writer, value);
    for (std::string& each : writer.scalars_) each.pop_back();
    return fmt::format("{{ {} }}", fmt::join(writer.scalars_, ", "));
  }
  template <class Value>
  void below(std::string_view key, std::string_view open, Value& value, std::string_view close) {
    const std::string path = path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
    tables_ += fmt::format("\n{}{}{}\n{}", open, path, close, text_of_table(path, value));
  }

  std::string path_;
  std::vector<std::string> scalars_;  // lines, written before the tables
  std::string tables_;
};

}  // namespace

std::string to_toml(const MachineSpec& machine) {
  MachineSpec copy = machine;
  return Writer::text_of_table("", copy);
}

}  // namespace echelon
