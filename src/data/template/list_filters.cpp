#include "data/template/operations.h"

#include <algorithm>

namespace echelon::jinja {
namespace {

/// As Jinja's `attribute`: names with dots.
Value attribute_of(Value of, const Value& path, Budget& budget) {
  require(path.text() != nullptr, "an attribute is a string, not {}", path.kind());
  std::string_view names = path.text()->bytes;
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find('.'));
    names.remove_prefix(std::min(name.size() + 1, names.size()));
    of = item_of(of, Text(name), budget);
  }
  return of;
}

bool is_kept(const Value& value, const Values& arguments, std::size_t test, Budget& budget) {
  if (arguments.size() <= test) return value.is_true();
  require(arguments[test].text() != nullptr, "a test is a string, not {}", arguments[test].kind());
  Values values{value};
  values.insert(values.end(), arguments.begin() + static_cast<std::ptrdiff_t>(test) + 1, arguments.end());
  return tested(arguments[test].text()->bytes, values, budget);
}

Value selected(const Values& arguments, bool by_attribute, bool keeps, Budget& budget) {
  require(!by_attribute || arguments.size() > 1, "the attribute to select by is missing");
  Values kept;
  for (Value& item : items_of(arguments[0], budget)) {
    const Value value = by_attribute ? attribute_of(item, arguments[1], budget) : item;
    if (is_kept(value, arguments, by_attribute ? 2 : 1, budget) == keeps) kept.push_back(std::move(item));
  }
  return Value::list(std::move(kept));
}

Value mapped(const Values& arguments, bool by_attribute, Budget& budget) {
  require(arguments.size() > 1 && arguments[1].text(), "map takes an attribute or the name of a filter");
  Values results;
  for (Value& item : items_of(arguments[0], budget)) {
    Values values{item};
    values.insert(values.end(), arguments.begin() + 2, arguments.end());
    results.push_back(by_attribute ? attribute_of(std::move(item), arguments[1], budget)
                                   : filtered(arguments[1].text()->bytes, values, budget));
  }
  return Value::list(std::move(results));
}

}  // namespace

std::optional<Value> list_filtered(std::string_view name, const Values& arguments, Budget& budget) {
  const Value& of = arguments[0];
  if (name == "map" || name == "map attribute") return mapped(arguments, name != "map", budget);
  if (name == "select" || name == "reject") return selected(arguments, false, name == "select", budget);
  if (name == "selectattr" || name == "rejectattr") return selected(arguments, true, name == "selectattr", budget);
  if (name == "reverse") return slice(of, {}, {}, std::int64_t{-1}, budget);
  return std::nullopt;
}

}  // namespace echelon::jinja
