#include "plan/space/closest_value.h"

#include "base/error.h"
#include "plan/space/space.h"
#include "spec/config/config_value.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace echelon {
namespace {

PlanRequest with_open(const PlanRequest& request, const ConfigKey& key) {
  PlanRequest open = request;
  open.fixed.erase(std::string(key.name));
  RunConfig defaults;
  assign(key, value_of(key, defaults), open.base);
  return open;
}

/// Each choice in turn, the others as of the first layout of a shape.
template <class Visit>
void for_each_choice(const PlanSpace& space, Visit&& visit) {
  for (const PlanShape& shape : space.shapes()) {
    const std::vector<PlanPipeline>& pipelines = space.pipelines(shape);
    const std::vector<PlanData>& data = space.data_layouts(shape);
    const PlanChoice first = {.shape = shape,
                              .pipeline = pipelines.front(),
                              .recompute = space.recomputes(pipelines.front()).front(),
                              .data = data.front(),
                              .order = space.orders(shape, data.front()).front()};
    const auto visit_with = [&](const auto& change) {
      PlanChoice choice = first;
      change(choice);
      visit(choice);
    };
    for (const PlanPipeline& pipeline : pipelines) visit_with([&](PlanChoice& c) { c.pipeline = pipeline; });
    for (const PlanRecompute& recompute : space.recomputes(pipelines.front()))
      visit_with([&](PlanChoice& c) { c.recompute = recompute; });
    for (const PlanData& each : data) visit_with([&](PlanChoice& c) { c.data = each; });
    for (const AxisOrder& order : space.orders(shape, data.front()))
      visit_with([&](PlanChoice& c) { c.order = order; });
  }
}

/// Integers and fractions by their difference, names by their letters.
std::string closest_of(const std::vector<ConfigValue>& values, const ConfigValue& wanted) {
  const auto to_double = [](const ConfigValue& value) {
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
    const auto* fraction = std::get_if<double>(&value);
    return fraction == nullptr ? 0 : *fraction;
  };
  if (std::holds_alternative<std::string>(wanted)) {
    std::vector<std::string> texts;
    for (const ConfigValue& value : values) texts.push_back(to_toml(value));
    return closest_name(to_toml(wanted), std::vector<std::string_view>(texts.begin(), texts.end()));
  }
  const double to = to_double(wanted);
  return to_toml(
      *std::ranges::min_element(values, {}, [&](const ConfigValue& value) { return std::abs(to_double(value) - to); }));
}

}  // namespace

std::string closest_value(const PlanRequest& request, std::string_view name) {
  const ConfigKey& key = *find_config_key(name);
  const PlanRequest open = with_open(request, key);
  if (!PlanSpace::has_layouts(open)) return {};
  std::vector<ConfigValue> values;
  const PlanSpace space(open);
  for_each_choice(space, [&](const PlanChoice& choice) {
    RunConfig config = space.config_of(choice);
    if (ConfigValue value = value_of(key, config); std::ranges::find(values, value) == values.end())
      values.push_back(std::move(value));
  });
  RunConfig base = request.base;
  return closest_of(values, value_of(key, base));
}

}  // namespace echelon
