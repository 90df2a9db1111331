#include "checkpoint/hf/config/config_fields.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/shown_json.h"
#include "files/file.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace echelon {
namespace {

constexpr std::int64_t max_config_bytes = 16 << 20;

}  // namespace

std::string without_python_numbers(std::string_view text) {
  std::string json;
  bool is_string = false;
  while (!text.empty()) {
    const auto is_number = [&](std::string_view name) { return !is_string && text.starts_with(name); };
    std::string_view taken = text.substr(0, is_string && text[0] == '\\' ? 2 : 1);
    for (const std::string_view name : {"-Infinity", "Infinity", "NaN"})
      if (is_number(name)) taken = name;
    if (taken.size() > 2)
      json += fmt::format(R"({{"__float__": "{}"}})", taken);
    else
      json += taken;
    if (taken == "\"") is_string = !is_string;
    text.remove_prefix(taken.size());
  }
  return json;
}

ConfigFields::ConfigFields(const std::filesystem::path& path) : path_(path.string()) {
  const std::string text = read_text_in_folder(path.parent_path(), path.filename().string(), max_config_bytes);
  fields_ = parse_json_object(without_python_numbers(text), path_);
}

ConfigFields::ConfigFields(const std::filesystem::path& path, nlohmann::json fields)
    : ConfigFields(path.string(), "", std::move(fields)) {}

ConfigFields::ConfigFields(std::string path, std::string prefix, nlohmann::json fields)
    : path_(std::move(path)), prefix_(std::move(prefix)), fields_(std::move(fields)) {}

const nlohmann::json* ConfigFields::find(std::string_view key) const {
  if (!fields_.is_object()) return nullptr;
  const auto found = fields_.find(std::string(key));
  return found == fields_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigFields::has(std::string_view key) const { return find(key) != nullptr; }

bool ConfigFields::is_null(std::string_view key) const {
  return find(key) == nullptr && fields_.is_object() && fields_.contains(std::string(key));
}

bool ConfigFields::is_text(std::string_view key) const { return has(key) && find(key)->is_string(); }

bool ConfigFields::is_neutral(std::string_view key, double neutral) const {
  const auto* value = find(key);
  if (value == nullptr || (value->is_structured() && value->empty())) return true;
  if (value->is_boolean()) return !value->get<bool>();
  return value->is_number() && value->get<double>() == neutral;
}

std::string ConfigFields::refusal(std::string_view key, std::string_view what) const {
  const auto* value = find(key);
  const std::string shown = value == nullptr ? "null" : shown_json(*value);
  return fmt::format("{}: {}{} = {} {}", path_, prefix_, key, shown.size() > 200 ? shown.substr(0, 200) + "..." : shown,
                     what);
}

void ConfigFields::refuse(std::string_view key, std::string_view what) const { throw Error(refusal(key, what)); }

void ConfigFields::refuse_missing(std::string_view key) const {
  throw Error(fmt::format("{} has no field \"{}{}\"", path_, prefix_, key));
}

std::int64_t ConfigFields::integer(std::string_view key, std::int64_t max, std::optional<std::int64_t> fallback,
                                   std::int64_t least) const {
  const auto* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) refuse_missing(key);
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() < static_cast<std::uint64_t>(least) ||
      value->get<std::uint64_t>() > static_cast<std::uint64_t>(max))
    refuse(key, least == max ? fmt::format("is not supported (use {})", max)
                             : fmt::format("is not a whole number from {} to {}", least, max));
  return value->get<std::int64_t>();
}

double ConfigFields::number(std::string_view key, std::optional<double> fallback) const {
  const auto* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) refuse_missing(key);
  if (!value->is_number() || !std::isfinite(value->get<double>())) refuse(key, "is not a number");
  return value->get<double>();
}

bool ConfigFields::boolean(std::string_view key, bool fallback) const {
  const auto* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) refuse(key, "is neither true nor false");
  return value->get<bool>();
}

std::string ConfigFields::text(std::string_view key, std::optional<std::string> fallback) const {
  const auto* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) refuse_missing(key);
  if (!value->is_string()) refuse(key, "is not a string");
  return value->get<std::string>();
}

std::vector<std::string> ConfigFields::texts(std::string_view key) const {
  const auto* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array() ||
      !std::all_of(value->begin(), value->end(), [](const auto& entry) { return entry.is_string(); }))
    refuse(key, "is not a list of strings");
  return value->get<std::vector<std::string>>();
}

std::vector<double> ConfigFields::numbers(std::string_view key) const {
  const auto* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), [](const auto& entry) {
        return entry.is_number() && std::isfinite(entry.template get<double>());
      }))
    refuse(key, "is not a list of finite values");
  return value->get<std::vector<double>>();
}

std::vector<std::int64_t> ConfigFields::integers(std::string_view key) const {
  const auto* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array() ||
      !std::all_of(value->begin(), value->end(), [](const auto& entry) { return entry.is_number_integer(); }))
    refuse(key, "is not a list of whole numbers");
  return value->get<std::vector<std::int64_t>>();
}

ConfigFields ConfigFields::object(std::string_view key) const {
  const auto* value = find(key);
  if (value != nullptr && !value->is_object()) refuse(key, "is not an object");
  return {path_, fmt::format("{}{}.", prefix_, key), value == nullptr ? nlohmann::json() : *value};
}

void ConfigFields::set(std::string_view key, const nlohmann::json& value) {
  if (!fields_.is_object()) fields_ = nlohmann::json::object();
  fields_[std::string(key)] = value;
}

void ConfigFields::require_one_of(std::string_view key, std::string_view value,
                                  const std::vector<std::string_view>& supported) const {
  if (std::find(supported.begin(), supported.end(), value) == supported.end())
    refuse(key, fmt::format("is not supported; did you mean \"{}\"?", closest_name(value, supported)));
}

void ConfigFields::require_flag(std::string_view key, bool supported) const {
  if (boolean(key, supported) != supported) refuse(key, fmt::format("is not supported (use {})", supported));
}

}  // namespace echelon
