#include "data/template/chat_template.h"

#include "base/error.h"
#include "data/template/evaluator.h"

#include <nlohmann/json.hpp>

namespace echelon::jinja {

ChatTemplate::ChatTemplate(std::string_view source) : block_(std::make_shared<const Block>(parse(source))) {}

Rendered ChatTemplate::render(const Map& variables, const RenderLimits& limits) const {
  return Evaluator(variables, limits).render(*block_);
}

Value value_of(const nlohmann::ordered_json& json, char32_t origin) {
  if (json.is_null()) return None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return Text(json.get_ref<const std::string&>(), origin);
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) items.push_back(value_of(item, origin));
    return Value::list(std::move(items));
  }
  Map map;
  for (const auto& [key, item] : json.items()) map.set(Text(key, origin), value_of(item, origin));
  return Value::map(std::move(map));
}

}  // namespace echelon::jinja
