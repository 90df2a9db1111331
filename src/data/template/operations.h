// Operators, filters, tests and methods of templates: functions of values.
#pragma once

#include "data/template/budget.h"
#include "data/template/value.h"
#include "data/tokenizer/unicode/letter_case.h"

#include <optional>
#include <string_view>
#include <vector>

namespace echelon::jinja {

using Values = std::vector<Value>;

[[nodiscard]] Value binary(std::string_view sign, const Value& a, const Value& b, Budget& budget);
/// Of integers and floats.
[[nodiscard]] Value arithmetic(std::string_view sign, const Value& a, const Value& b, Budget& budget);
/// As to_text, in proportion to what the budget allows.
[[nodiscard]] Text text_of(const Value& value, Budget& budget);
[[nodiscard]] bool equal_in(const Value& a, const Value& b, Budget& budget);
[[nodiscard]] Value item_of(const Value& of, const Value& key, Budget& budget);
[[nodiscard]] Value slice(const Value& of, const Value& start, const Value& stop, const Value& step, Budget& budget);
/// What a loop or `list` sees: items, keys, or characters.
[[nodiscard]] Values items_of(const Value& of, Budget& budget);
[[nodiscard]] std::vector<Text> characters_of(const Text& text, Budget& budget);
[[nodiscard]] std::int64_t num_characters(const Text& text, Budget& budget);
[[nodiscard]] Text characters_between(const Text& text, std::int64_t first, std::int64_t last);
/// Steps for what makes no string, but reads one, or compares each part of it with what is searched.
void charge_read(const Text& text, Budget& budget);
void charge_search(const Text& text, const Text& wanted, Budget& budget);

/// arguments[0] is the value itself. An unknown name is an Error.
[[nodiscard]] Value filtered(std::string_view name, const Values& arguments, Budget& budget);
/// Where a filter takes the argument with this name; 0 if it has none.
[[nodiscard]] std::size_t place_of_argument(std::string_view filter, std::string_view name);
/// Filters of lists, of their order and of text; none if `name` is not one.
[[nodiscard]] std::optional<Value> list_filtered(std::string_view name, const Values& arguments, Budget& budget);
[[nodiscard]] std::optional<Value> order_filtered(std::string_view name, const Values& arguments, Budget& budget);
[[nodiscard]] std::optional<Value> text_filtered(std::string_view name, const Values& arguments, Budget& budget);
[[nodiscard]] bool tested(std::string_view name, const Values& arguments, Budget& budget);
[[nodiscard]] Value method(std::string_view name, const Values& arguments, Budget& budget);

/// A value whose argument was left out is undefined.
[[nodiscard]] Value argument(const Values& arguments, std::size_t i, const Value& otherwise = {});
[[nodiscard]] const Text& text_at(const Values& arguments, std::size_t i);
/// As Jinja's `attribute`: names with dots; an undefined one is `otherwise`.
[[nodiscard]] Value attribute_of(Value of, const Value& path, Budget& budget, const Value& otherwise = {});

/// As MarkupSafe's `escape` of a string, and a text that is its Markup or not.
[[nodiscard]] Text escaped(const Text& text, Budget& budget);
[[nodiscard]] Text marked(Text text, bool is_markup);
[[nodiscard]] inline bool is_markup(const Value& value) { return value.text() && value.text()->is_markup; }

/// As Python's methods of strings.
[[nodiscard]] Text strip(const Values& arguments, bool left, bool right);
[[nodiscard]] Text replaced(const Values& arguments, Budget& budget);
[[nodiscard]] Text cased(Text text, LetterCase letter_case, Budget& budget);
[[nodiscard]] Value pairs(const Value& of, Budget& budget);
[[nodiscard]] std::size_t blank_at(std::string_view text, bool end);
[[nodiscard]] Value split(const Values& arguments, Budget& budget);
[[nodiscard]] Value split_from_right(const Values& arguments, Budget& budget);
[[nodiscard]] Values lines_of(const Text& text, Budget& budget);

struct JsonStyle {
  int indent = -1;  // negative: on one line
  std::string between = ", ", after_key = ": ";
  bool sorts_keys = false, is_ascii = false;
};
[[nodiscard]] Text json_of(const Value& value, const JsonStyle& style, int depth, Budget& budget);

}  // namespace echelon::jinja
