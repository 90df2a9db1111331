#include "data/template/chat_template.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "data/template/evaluator.h"

#include <nlohmann/json.hpp>

#include <limits>

namespace echelon::jinja {
namespace {

constexpr std::size_t most_json_depth = 60;  // below what a value may have, so that a template can wrap it

Value value_at(const nlohmann::ordered_json& json, char32_t origin, std::size_t depth) {
  require(depth <= most_json_depth, "values are nested more than {} deep", most_json_depth);
  if (json.is_null()) return None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned())
    require(json.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()),
            "{} is not in 64 bits", json.get<std::uint64_t>());
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return Text(json.get_ref<const std::string&>(), origin);
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) items.push_back(value_at(item, origin, depth + 1));
    return Value::list(std::move(items));
  }
  Map map;
  for (const auto& [key, item] : json.items()) map.set(Text(key, origin), value_at(item, origin, depth + 1));
  return Value::map(std::move(map));
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source) : template_(std::make_shared<const Template>(parse(source))) {}

Rendered ChatTemplate::render(const Map& variables, const RenderLimits& limits) const {
  return Evaluator(variables, limits).render(*template_);
}

Value value_of(const nlohmann::ordered_json& json, char32_t origin) { return value_at(json, origin, 0); }

nlohmann::ordered_json parse_bounded(std::string_view text) {
  require_bounded_json(text, {.most_depth = most_json_depth, .most_keys = 1000});  // a mapping is searched key by key
  return nlohmann::ordered_json::parse(text);
}

}  // namespace echelon::jinja
