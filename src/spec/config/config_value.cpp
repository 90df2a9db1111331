#include "spec/config/config_value.h"

#include "base/error.h"
#include "spec/choice.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace echelon {
namespace {

/// The one that is meant, in the words of other formats.
std::string_view closest_flag(std::string text) {
  constexpr std::string_view words[] = {"true", "yes", "on", "1", "false", "no", "off", "0"};
  std::erase(text, '"');
  const std::string closest = closest_name(text, words);
  return std::find(words, words + 4, closest) != words + 4 ? words[0] : words[4];
}

[[noreturn]] void throw_wrong_type(const ConfigKey& key, const ConfigValue& value, std::string_view expected) {
  RunConfig defaults;
  const bool has_example = section_of(key) != "model" && !std::holds_alternative<FieldOf<bool>>(key.field);
  const bool is_list = takes_integers(key);  // empty by default
  const std::string example =
      !has_example ? "" : ", such as " + (is_list ? "[3, 5]" : to_toml(value_of(key, defaults)));
  const std::string hint = std::holds_alternative<FieldOf<bool>>(key.field)
                               ? fmt::format("; did you mean {}?", closest_flag(to_toml(value)))
                               : "";
  throw Error(fmt::format("{} = {} is not {}{}{}", key.name, to_toml(value), expected, example, hint));
}

template <class T>
const T& get(const ConfigKey& key, const ConfigValue& value, std::string_view expected) {
  if (const T* held = std::get_if<T>(&value)) return *held;
  throw_wrong_type(key, value, expected);
}

constexpr double beyond = 9223372036854775808.0;  // the least double above all int64

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool is_beyond(double number) {
  return std::isfinite(number) && std::trunc(number) == number && std::abs(number) >= beyond;
}

/// Throws Error for a whole number that int64 cannot hold; on the command line it is a text, with all its digits.
void require_held(const ConfigKey& key, const ConfigValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  const auto* real = std::get_if<double>(&value);
  const std::optional<double> number = text ? parse_number<double>(*text) : real ? std::optional(*real) : std::nullopt;
  if (!number || !is_beyond(*number)) return;
  using Limits = std::numeric_limits<std::int64_t>;
  const bool is_above = *number > 0;
  const double bound = is_above ? key.range.most : key.range.least;
  const std::int64_t closest = std::abs(bound) < beyond ? static_cast<std::int64_t>(bound)
                               : is_above               ? Limits::max()
                                                        : Limits::min();
  throw Error(fmt::format("{} = {} is {} {} (use {})", key.name, text ? *text : to_toml(value),
                          is_above ? "above" : "below", closest, closest));
}

// 1e6 counts as a whole number.
std::optional<std::int64_t> as_whole(const ConfigValue& value) {
  const double* number = std::get_if<double>(&value);
  if (number == nullptr || std::trunc(*number) != *number || std::abs(*number) >= beyond) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

struct Assign {
  const ConfigKey& key;
  const ConfigValue& value;
  RunConfig& config;

  void operator()(FieldOf<std::int64_t> field) const {
    require_held(key, value);
    const auto whole = as_whole(value);
    field(config) = whole ? *whole : get<std::int64_t>(key, value, "an integer");
  }
  void operator()(FieldOf<double> field) const {
    const auto* whole = std::get_if<std::int64_t>(&value);
    field(config) = whole ? static_cast<double>(*whole) : get<double>(key, value, "a number");
  }
  void operator()(FieldOf<bool> field) const { field(config) = get<bool>(key, value, "true or false"); }
  void operator()(FieldOf<std::string> field) const { field(config) = get<std::string>(key, value, "a string"); }
  void operator()(FieldOf<PipelineLayout> field) const {
    if (const auto* letters = std::get_if<std::string>(&value))
      field(config) = {.counts = {}, .letters = *letters};
    else
      field(config) = {.counts = get<std::vector<std::int64_t>>(
                           key, value, "a list of integers or a string of the letters E, t and L"),
                       .letters = {}};
  }
  void operator()(FieldOf<std::vector<std::int64_t>> field) const {
    field(config) = get<std::vector<std::int64_t>>(key, value, "a list of integers");
  }
  void operator()(FieldOf<std::vector<std::string>> field) const {
    const auto* one = std::get_if<std::string>(&value);
    field(config) = one ? std::vector{*one} : get<std::vector<std::string>>(key, value, "a name or a list of names");
  }
  void operator()(FieldOf<PipelineSchedule> field) const {
    field(config) = parse_pipeline_schedule(key.name, get<std::string>(key, value, "a string"));
  }
  void operator()(FieldOf<ReshardAfterForward> field) const {
    field(config) = parse_reshard_after_forward(key.name, get<std::string>(key, value, "a string"));
  }
  void operator()(FieldOf<LrDecay> field) const {
    field(config) = parse_lr_decay(key.name, get<std::string>(key, value, "a string"));
  }
  void operator()(FieldOf<RecomputeMethod> field) const {
    field(config) = parse_recompute_method(key.name, get<std::string>(key, value, "a string"));
  }
  void operator()(FieldOf<BlockOperations> field) const {
    const auto* one = std::get_if<std::string>(&value);
    field(config) = parse_recompute(
        key.name, one ? std::vector{*one} : get<std::vector<std::string>>(key, value, "a name or a list of names"));
  }
  void operator()(FieldOf<AxisOrder> field) const {
    const auto* one = std::get_if<std::string>(&value);
    field(config) = parse_axis_order(
        key.name, one ? std::vector{*one} : get<std::vector<std::string>>(key, value, "a string or a list of names"));
  }
  void operator()(FieldOf<LoadExclusions> field) const {
    const auto* one = std::get_if<std::string>(&value);
    field(config) = parse_load_exclusions(
        key.name, one ? std::vector{*one} : get<std::vector<std::string>>(key, value, "a name or a list of names"));
  }
  void operator()(FieldOf<Family> field) const {
    field(config) = parse_family(get<std::string>(key, value, "a string"));
  }
  void operator()(ChoiceField field) const { field.parse(key.name, get<std::string>(key, value, "a string"), config); }
  void operator()(TextField field) const { field.parse(key.name, get<std::string>(key, value, "a string"), config); }
  void operator()(ModelBase) const {}
  void operator()(NotYet) const {}
};

struct Read {
  RunConfig& config;

  ConfigValue operator()(FieldOf<PipelineSchedule> field) const { return std::string(name_of(field(config))); }
  ConfigValue operator()(FieldOf<PipelineLayout> field) const {
    if (!field(config).letters.empty()) return field(config).letters;
    return field(config).counts;
  }
  ConfigValue operator()(FieldOf<ReshardAfterForward> field) const { return std::string(name_of(field(config))); }
  ConfigValue operator()(FieldOf<LrDecay> field) const { return std::string(name_of(field(config))); }
  ConfigValue operator()(FieldOf<Family> field) const { return std::string(name_of(field(config))); }
  ConfigValue operator()(FieldOf<RecomputeMethod> field) const { return std::string(name_of(field(config))); }
  ConfigValue operator()(FieldOf<BlockOperations> field) const {
    std::vector<std::string> names = names_of(field(config));
    if (names.size() == 1) return names[0];
    return names;
  }
  ConfigValue operator()(FieldOf<LoadExclusions> field) const { return names_of(field(config)); }
  ConfigValue operator()(FieldOf<AxisOrder> field) const { return name_of(field(config)); }
  ConfigValue operator()(ChoiceField field) const { return std::string(field.name(config)); }
  ConfigValue operator()(TextField field) const { return field.text(config); }
  ConfigValue operator()(ModelBase) const { return std::string(); }
  ConfigValue operator()(NotYet) const { return std::string(); }
  ConfigValue operator()(auto field) const { return field(config); }
};

// "[a, b]" or "a,b"; elements may be quoted.
std::vector<std::string> split_list(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  constexpr std::string_view around = " '\"";
  std::vector<std::string> list;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (!part.empty() && around.find(part.front()) != std::string_view::npos) part.remove_prefix(1);
    while (!part.empty() && around.find(part.back()) != std::string_view::npos) part.remove_suffix(1);
    list.emplace_back(part);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return list;
}

std::optional<std::vector<std::int64_t>> parse_list(std::string_view text) {
  std::vector<std::int64_t> list;
  for (const std::string& part : split_list(text)) {
    const auto number = parse_number<std::int64_t>(part);
    if (!number) return std::nullopt;
    list.push_back(*number);
  }
  return list;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

void assign(const ConfigKey& key, const ConfigValue& value, RunConfig& config) {
  std::visit(Assign{key, value, config}, key.field);
}

void assign(const Setting& setting, RunConfig& config) {
  try {
    assign(*find_config_key(setting.name), setting.value, config);
  } catch (const UnknownChoice&) {
    throw;
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", setting.origin, error.what()));
  }
}

ConfigValue value_of(const ConfigKey& key, RunConfig& config) { return std::visit(Read{config}, key.field); }

ConfigValue parse_text(const ConfigKey& key, std::string_view text) {
  if (takes_integers(key)) {
    if (auto list = parse_list(text)) return *std::move(list);
  } else if (takes_names(key)) {
    return split_list(text);
  } else if (std::holds_alternative<FieldOf<bool>>(key.field)) {
    if (text == "true" || text == "false") return text == "true";
  } else if (std::holds_alternative<FieldOf<std::int64_t>>(key.field) ||
             std::holds_alternative<FieldOf<double>>(key.field)) {
    if (const auto whole = parse_number<std::int64_t>(text)) return *whole;
    const auto number = parse_number<double>(text);
    const bool loses_digits = number && is_beyond(*number) && std::holds_alternative<FieldOf<std::int64_t>>(key.field);
    if (number && !loses_digits) return *number;
  }
  return std::string(text);
}

std::string to_toml(const ConfigValue& value) {
  struct Print {
    std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(const std::string& text) const { return quoted(text); }
    std::string operator()(const std::vector<std::int64_t>& list) const {
      return fmt::format("[{}]", fmt::join(list, ", "));
    }
    std::string operator()(const std::vector<std::string>& list) const {
      std::string out;
      for (const std::string& text : list) out += (out.empty() ? "" : ", ") + quoted(text);
      return "[" + out + "]";
    }
  };
  return std::visit(Print{}, value);
}

}  // namespace echelon
