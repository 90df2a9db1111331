// Operators, filters, tests and methods of templates: functions of values.
#pragma once

#include "data/template/budget.h"
#include "data/template/value.h"

#include <optional>
#include <string_view>
#include <vector>

namespace echelon::jinja {

using Values = std::vector<Value>;

[[nodiscard]] Value binary(std::string_view sign, const Value& a, const Value& b, Budget& budget);
/// As to_text, in proportion to what the budget allows.
[[nodiscard]] Text text_of(const Value& value, Budget& budget);
[[nodiscard]] bool equal_in(const Value& a, const Value& b, Budget& budget);
[[nodiscard]] Value item_of(const Value& of, const Value& key, Budget& budget);
[[nodiscard]] Value slice(const Value& of, const Value& start, const Value& stop, const Value& step, Budget& budget);
/// What a loop or `list` sees: items, keys, or characters.
[[nodiscard]] Values items_of(const Value& of, Budget& budget);
[[nodiscard]] std::vector<Text> characters_of(const Text& text, Budget& budget);

/// arguments[0] is the value itself. An unknown name is an Error.
[[nodiscard]] Value filtered(std::string_view name, const Values& arguments, Budget& budget);
/// Filters of lists; none if `name` is not one.
[[nodiscard]] std::optional<Value> list_filtered(std::string_view name, const Values& arguments, Budget& budget);
[[nodiscard]] bool tested(std::string_view name, const Values& arguments, Budget& budget);
[[nodiscard]] Value method(std::string_view name, const Values& arguments, Budget& budget);

[[nodiscard]] Text stripped(const Text& text, std::string_view of, bool left, bool right);
[[nodiscard]] Text replaced(const Text& text, const Text& from, const Text& to, Budget& budget);
[[nodiscard]] Text json_of(const Value& value, int indent, int depth, Budget& budget);

}  // namespace echelon::jinja
