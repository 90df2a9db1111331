#include "data/template/chat_template.h"

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

std::size_t byte_of(const nlohmann::ordered_json::exception& error) {
  const auto* parse_error = dynamic_cast<const nlohmann::ordered_json::parse_error*>(&error);
  return parse_error != nullptr ? parse_error->byte : 0;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source) : block_(std::make_shared<const Block>(parse(source))) {}

Rendered ChatTemplate::render(const Map& variables, const RenderLimits& limits) const {
  return Evaluator(variables, limits).render(*block_);
}

Value value_of(const nlohmann::ordered_json& json, char32_t origin) { return value_at(json, origin, 0); }

nlohmann::ordered_json parse_bounded(std::string_view text) {
  using Json = nlohmann::ordered_json;
  constexpr std::size_t most_keys = 1000;  // a mapping is searched key by key
  std::vector<std::size_t> num_keys;
  const auto count = [&](int /*depth*/, Json::parse_event_t event, Json& /*parsed*/) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) num_keys.push_back(0);
    if (event == Event::object_end || event == Event::array_end) num_keys.pop_back();
    require(num_keys.size() <= most_json_depth, "the JSON is nested more than {} deep", most_json_depth);
    require(event != Event::key || ++num_keys.back() <= most_keys, "an object of the JSON has more than {} keys",
            most_keys);
    return true;
  };
  try {
    return Json::parse(text, count);
  } catch (const Json::exception& error) {
    throw Error(fmt::format("not valid JSON in UTF-8 (at byte {})", byte_of(error)));
  }
}

}  // namespace echelon::jinja
