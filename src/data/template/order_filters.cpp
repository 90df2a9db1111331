// Filters that compare items: sort, unique, dictsort, min, max and sum.
#include "data/template/operations.h"

#include <algorithm>
#include <utility>

namespace echelon::jinja {
namespace {

struct Keyed {
  Value key, item;
};

/// By attribute if one is given; strings without their case unless it counts.
std::vector<Keyed> keyed(const Value& of, const Value& attribute, bool is_case_sensitive, Budget& budget) {
  std::vector<Keyed> result;
  for (Value& item : items_of(of, budget)) {
    const bool is_item = attribute.is<Undefined>() || attribute.is<None>();
    Value key = is_item ? item : attribute_of(item, attribute, budget);
    if (key.text() && !is_case_sensitive) key = cased(*key.text(), LetterCase::lower, budget);
    result.push_back({std::move(key), std::move(item)});
  }
  return result;
}

/// Stable, also in reverse.
void sort_by_key(std::vector<Keyed>& items, bool is_reverse, Budget& budget) {
  std::ranges::stable_sort(items, [&](const Keyed& a, const Keyed& b) {
    budget.step();
    return binary(is_reverse ? ">" : "<", a.key, b.key, budget).is_true();
  });
}

Value sorted(const Values& arguments, Budget& budget) {
  auto items = keyed(arguments[0], argument(arguments, 3), argument(arguments, 2).is_true(), budget);
  sort_by_key(items, argument(arguments, 1).is_true(), budget);
  Values result;
  for (Keyed& item : items) result.push_back(std::move(item.item));
  return Value::list(std::move(result));
}

Value unique(const Values& arguments, Budget& budget) {
  std::vector<Keyed> kept;
  for (Keyed& item : keyed(arguments[0], argument(arguments, 2), argument(arguments, 1).is_true(), budget)) {
    const auto is_same = [&](const Keyed& other) { return equal_in(item.key, other.key, budget); };
    if (std::ranges::none_of(kept, is_same)) kept.push_back(std::move(item));
  }
  Values result;
  for (Keyed& item : kept) result.push_back(std::move(item.item));
  return Value::list(std::move(result));
}

Value sorted_pairs(const Values& arguments, Budget& budget) {
  const Value by = argument(arguments, 2, Text("key"));
  require(by.text() && (by.text()->bytes == "key" || by.text()->bytes == "value"),
          "dictsort sorts by 'key' or 'value'");
  const std::int64_t part = by.text()->bytes == "key" ? 0 : 1;
  return sorted({pairs(arguments[0], budget), argument(arguments, 3), argument(arguments, 1), part}, budget);
}

Value extreme(const Values& arguments, std::string_view sign, Budget& budget) {
  auto items = keyed(arguments[0], argument(arguments, 2), argument(arguments, 1).is_true(), budget);
  if (items.empty()) return Undefined{"the extreme of an empty list"};
  auto best = items.begin();
  for (auto item = items.begin(); item != items.end(); ++item)
    if (binary(sign, item->key, best->key, budget).is_true()) best = item;
  return best->item;
}

Value sum(const Values& arguments, Budget& budget) {
  Value total = argument(arguments, 2, std::int64_t{0});
  const Value attribute = argument(arguments, 1);
  for (const Value& item : items_of(arguments[0], budget))
    total = binary("+", total, attribute.is<Undefined>() ? item : attribute_of(item, attribute, budget), budget);
  return total;
}

}  // namespace

std::optional<Value> order_filtered(std::string_view name, const Values& arguments, Budget& budget) {
  if (name == "sort") return sorted(arguments, budget);
  if (name == "unique") return unique(arguments, budget);
  if (name == "dictsort") return sorted_pairs(arguments, budget);
  if (name == "min" || name == "max") return extreme(arguments, name == "min" ? "<" : ">", budget);
  if (name == "sum") return sum(arguments, budget);
  return std::nullopt;
}

}  // namespace echelon::jinja
