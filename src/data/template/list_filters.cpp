// Filters that choose and change the items of lists.
#include "data/template/operations.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace echelon::jinja {
namespace {

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
  if (!arguments[0].is_true()) return Value::list({});  // as Jinja, whatever it is
  for (Value& item : items_of(arguments[0], budget)) {
    const Value value = by_attribute ? attribute_of(item, arguments[1], budget) : item;
    if (is_kept(value, arguments, by_attribute ? 2 : 1, budget) == keeps) kept.push_back(std::move(item));
  }
  return Value::list(std::move(kept));
}

Value mapped(const Values& arguments, bool by_attribute, Budget& budget) {
  require(arguments.size() > 1 && (arguments[1].text() || by_attribute),
          "map takes an attribute or the name of a filter");
  Values results;
  if (!arguments[0].is_true()) return Value::list({});
  for (Value& item : items_of(arguments[0], budget)) {
    Values values{item};
    if (!by_attribute) values.insert(values.end(), arguments.begin() + 2, arguments.end());
    results.push_back(by_attribute ? attribute_of(std::move(item), arguments[1], budget, argument(arguments, 2))
                                   : filtered(arguments[1].text()->bytes, values, budget));
  }
  return Value::list(std::move(results));
}

Value batched(const Values& arguments, Budget& budget) {
  const Value size = argument(arguments, 1), fill = argument(arguments, 2);
  require(size.is_whole() && size.whole() > 0, "batch takes a positive size");
  Values batches, batch;
  for (Value& item : items_of(arguments[0], budget)) {
    if (std::ssize(batch) == size.whole()) batches.push_back(Value::list(std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  while (!batch.empty() && !fill.is<Undefined>() && !fill.is<None>() && std::ssize(batch) < size.whole())
    budget.step(), batch.push_back(fill);
  if (!batch.empty()) batches.push_back(Value::list(std::move(batch)));
  return Value::list(std::move(batches));
}

}  // namespace

Value attribute_of(Value of, const Value& path, Budget& budget, const Value& otherwise) {
  if (path.is_whole()) {
    of = item_of(of, path, budget);
    return of.is<Undefined>() ? otherwise.is<Undefined>() ? of : otherwise : of;
  }
  require(path.text() != nullptr, "an attribute is a string or an integer, not {}", path.kind());
  std::string_view names = path.text()->bytes;
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find('.'));
    names.remove_prefix(std::min(name.size() + 1, names.size()));
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_index = error == std::errc() && end == name.data() + name.size() && index >= 0;
    of = item_of(of, is_index ? Value(index) : Value(Text(name)), budget);
    if (of.is<Undefined>() && !otherwise.is<Undefined>()) of = otherwise;
  }
  return of;
}

std::optional<Value> list_filtered(std::string_view name, const Values& arguments, Budget& budget) {
  const Value& of = arguments[0];
  if (name == "map" || name == "map attribute") return mapped(arguments, name != "map", budget);
  if (name == "select" || name == "reject") return selected(arguments, false, name == "select", budget);
  if (name == "selectattr" || name == "rejectattr") return selected(arguments, true, name == "selectattr", budget);
  if (name == "batch") return batched(arguments, budget);
  if (name == "attr" && arguments.size() == 2) return item_of(of, arguments[1], budget);
  if (name == "reverse") {
    if (of.text()) return slice(of, {}, {}, std::int64_t{-1}, budget);
    Values items = items_of(of, budget);
    std::ranges::reverse(items);
    return Value::list(std::move(items));
  }
  return std::nullopt;
}

}  // namespace echelon::jinja
