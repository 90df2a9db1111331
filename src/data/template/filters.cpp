#include "data/template/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace echelon::jinja {
namespace {

/// The parameters of filters after the value, in order.
struct Parameters {
  std::string_view filter;
  std::array<std::string_view, 5> names;
};
constexpr std::array<Parameters, 17> parameters = {{{"default", {"default_value", "boolean"}},
                                                    {"d", {"default_value", "boolean"}},
                                                    {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}},
                                                    {"map", {"attribute", "default"}},
                                                    {"indent", {"width", "first", "blank"}},
                                                    {"join", {"d", "attribute"}},
                                                    {"sort", {"reverse", "case_sensitive", "attribute"}},
                                                    {"unique", {"case_sensitive", "attribute"}},
                                                    {"dictsort", {"case_sensitive", "by", "reverse"}},
                                                    {"min", {"case_sensitive", "attribute"}},
                                                    {"max", {"case_sensitive", "attribute"}},
                                                    {"sum", {"attribute", "start"}},
                                                    {"round", {"precision", "method"}},
                                                    {"trim", {"chars"}},
                                                    {"replace", {"old", "new", "count"}},
                                                    {"batch", {"linecount", "fill_with"}},
                                                    {"int", {"default", "base"}}}};

Value length(const Value& of, Budget& budget) {
  if (of.text()) return num_characters(*of.text(), budget);
  if (of.list()) return std::ssize(of.list()->items);
  return std::ssize(items_of(of, budget));
}

Text join(const Values& arguments, Budget& budget) {
  Text text;
  const Values items = items_of(arguments[0], budget);
  const Value by = argument(arguments, 1, Text()), attribute = argument(arguments, 2);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text.append(text_of(by, budget));
    text.append(text_of(attribute.is<Undefined>() ? items[i] : attribute_of(items[i], attribute, budget), budget));
  }
  return text;
}

Text json(const Values& arguments, Budget& budget) {
  JsonStyle style{.sorts_keys = argument(arguments, 4).is_true(), .is_ascii = argument(arguments, 1).is_true()};
  const Value indent = argument(arguments, 2), separators = argument(arguments, 3);
  if (indent.is_whole()) {
    require(indent.whole() >= 0 && indent.whole() <= 16, "tojson indents by 0 to 16");
    style.indent = static_cast<int>(indent.whole());
    style.between = ",";
  }
  if (separators.list()) {
    require(separators.list()->items.size() == 2, "tojson takes two separators");
    style.between = text_at(separators.list()->items, 0).bytes;
    style.after_key = text_at(separators.list()->items, 1).bytes;
  }
  return json_of(arguments[0], style, 0, budget);
}

}  // namespace

std::size_t place_of_argument(std::string_view filter, std::string_view name) {
  for (const Parameters& of : parameters) {
    if (of.filter != filter || name.empty()) continue;
    const auto found = std::ranges::find(of.names, name);
    if (found != of.names.end()) return static_cast<std::size_t>(found - of.names.begin()) + 1;
  }
  return 0;
}

Value argument(const Values& arguments, std::size_t i, const Value& otherwise) {
  return i < arguments.size() && !arguments[i].is<Undefined>() ? arguments[i] : otherwise;
}

const Text& text_at(const Values& arguments, std::size_t i) {
  require(i < arguments.size() && arguments[i].text(), "argument {} is not a string", i);
  return *arguments[i].text();
}

Value pairs(const Value& of, Budget& budget) {
  require(of.map() || of.is<Undefined>(), "{} has no pairs", of.kind());
  Values result;
  if (!of.map()) return Value::list({});
  for (const auto& [key, item] : of.map()->items) {
    budget.step();
    result.push_back(Value::list({key, item}, true));
  }
  return Value::list(std::move(result));
}

Value filtered(std::string_view name, const Values& arguments, Budget& budget) {
  const Value& of = arguments[0];
  if (name == "default" || name == "d") {
    const bool is_missing = argument(arguments, 2).is_true() ? !of.is_true() : of.is<Undefined>();
    return is_missing ? argument(arguments, 1, Text()) : of;
  }
  if (name == "length" || name == "count") return length(of, budget);
  if (name == "join") return join(arguments, budget);
  if (name == "list") return Value::list(items_of(of, budget));
  if (name == "items") return pairs(of, budget);
  if (name == "tojson") return json(arguments, budget);
  if (name == "first" || name == "last") {
    const Values items = items_of(of, budget);
    if (items.empty()) return Undefined{std::string(name)};
    return name == "last" && is_markup(of) ? marked(*items.back().text(), true)
           : name == "first"               ? items.front()
                                           : items.back();
  }
  if (auto result = text_filtered(name, arguments, budget)) return *std::move(result);
  if (auto result = list_filtered(name, arguments, budget)) return *std::move(result);
  if (auto result = order_filtered(name, arguments, budget)) return *std::move(result);
  throw Error(fmt::format("the filter {} with {} arguments is not supported", name, arguments.size() - 1));
}

}  // namespace echelon::jinja
