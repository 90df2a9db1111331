#include "data/template/operations.h"

#include <algorithm>

namespace echelon::jinja {
namespace {

/// Lists may share items, so that a small one has a long text.
void charge(const Value& value, Budget& budget) {
  budget.step();
  if (value.text()) budget.grow(value.text()->bytes.size());
  if (value.list())
    for (const Value& item : value.list()->items) charge(item, budget);
  if (value.map())
    for (const auto& [key, item] : value.map()->items) budget.grow(key.bytes.size()), charge(item, budget);
}

bool contains(const Value& of, const Value& item, Budget& budget) {
  if (of.text() && item.text()) {
    charge_search(*of.text(), *item.text(), budget);
    return of.text()->bytes.find(item.text()->bytes) != std::string::npos;
  }
  if (const Map* map = of.map()) return item.text() != nullptr && map->find(item.text()->bytes) != nullptr;
  require(of.list() != nullptr || of.is<Undefined>(), "`in` does not take {} in {}", item.kind(), of.kind());
  if (!of.list()) return false;
  budget.step(static_cast<std::int64_t>(of.list()->items.size()));
  return std::ranges::any_of(of.list()->items, [&](const Value& other) { return equal_in(item, other, budget); });
}

bool less(std::string_view sign, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.real() < b.real();
  if (a.list() && b.list() && a.list()->is_tuple == b.list()->is_tuple) {
    const auto [x, y] = std::ranges::mismatch(a.list()->items, b.list()->items, equal);
    return y != b.list()->items.end() && (x == a.list()->items.end() || less(sign, *x, *y));
  }
  require(a.text() && b.text(), "{} {} {} is not defined", a.kind(), sign, b.kind());
  return a.text()->bytes < b.text()->bytes;
}

Text joined(const Value& a, const Value& b, Budget& budget) {
  Text text;
  text.append(text_of(a, budget));
  text.append(text_of(b, budget));
  return text;
}

std::int64_t index_of(const Value& key, std::size_t size) {
  const std::int64_t index = key.whole();
  return index < 0 ? index + static_cast<std::int64_t>(size) : index;
}

std::int64_t clamped(const Value& bound, std::int64_t otherwise, std::int64_t low, std::int64_t size) {
  if (bound.is<None>() || bound.is<Undefined>()) return otherwise;
  require(bound.is_whole(), "a slice does not take {}", bound.kind());
  const std::int64_t at = bound.whole() < 0 ? bound.whole() + size : bound.whole();
  return std::clamp(at, low, low + size);
}

}  // namespace

Text text_of(const Value& value, Budget& budget) {
  charge(value, budget);
  return to_text(value);
}

bool equal_in(const Value& a, const Value& b, Budget& budget) {
  charge(a, budget);
  charge(b, budget);
  return equal(a, b);
}

Value binary(std::string_view sign, const Value& a, const Value& b, Budget& budget) {
  if (sign == "==") return equal_in(a, b, budget);
  if (sign == "!=") return !equal_in(a, b, budget);
  if (sign == "in") return contains(b, a, budget);
  if (sign == "~") return joined(a, b, budget);
  if (a.list() && b.list() && sign.find_first_of("<>") != std::string_view::npos) charge(a, budget), charge(b, budget);
  if (a.text() && b.text()) charge_read(*a.text(), budget);
  if (sign == "<") return less(sign, a, b);
  if (sign == ">") return less(sign, b, a);
  if (sign == "<=") return !less(sign, b, a);
  if (sign == ">=") return !less(sign, a, b);
  if (sign == "+" && (is_markup(a) || is_markup(b)) && a.text() && b.text())
    return marked(joined(escaped(*a.text(), budget), escaped(*b.text(), budget), budget), true);
  if (sign == "+" && a.text() && b.text()) return joined(a, b, budget);
  if (sign == "+" && a.list() && b.list() && a.list()->is_tuple == b.list()->is_tuple) {
    Values items = a.list()->items;
    items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
    budget.step(static_cast<std::int64_t>(items.size()));
    return Value::list(std::move(items), a.list()->is_tuple);
  }
  if (sign == "*" && a.is_whole() && (b.text() || b.list())) return binary(sign, b, a, budget);
  if (sign == "*" && a.list() && b.is_whole()) {
    Values items;
    for (std::int64_t i = 0; i < b.whole(); ++i) {
      budget.step(std::ssize(a.list()->items) + 1);
      items.insert(items.end(), a.list()->items.begin(), a.list()->items.end());
    }
    return Value::list(std::move(items), a.list()->is_tuple);
  }
  if (sign == "*" && a.text() && b.is_whole()) {
    Text text;
    for (std::int64_t i = 0; i < b.whole(); ++i) budget.step(), budget.append(text, *a.text());
    return marked(std::move(text), is_markup(a));
  }
  require(sign != "%" || !a.text(), "formatting with % is not supported");
  require(a.is_number() && b.is_number(), "{} {} {} is not defined", a.kind(), sign, b.kind());
  return arithmetic(sign, a, b, budget);
}

Value item_of(const Value& of, const Value& key, Budget& budget) {
  require(!key.list() && !key.map(), "{} is not a key", key.kind());
  if (of.is<std::shared_ptr<Namespace>>() && key.text()) {
    const Value* found = of.as<std::shared_ptr<Namespace>>()->map.find(key.text()->bytes);
    return found ? *found : Undefined{key.text()->bytes};
  }
  require(!of.is<Undefined>(), "'{}' is undefined", of.is<Undefined>() ? of.as<Undefined>().name : "");
  if (of.map() && key.text()) {
    budget.step(std::ssize(of.map()->items) / 16);
    const Value* found = of.map()->find(key.text()->bytes);
    return found ? *found : Undefined{key.text()->bytes};
  }
  if (of.list() && key.is_whole()) {
    const std::int64_t at = index_of(key, of.list()->items.size());
    if (at >= 0 && at < std::ssize(of.list()->items)) return of.list()->items[static_cast<std::size_t>(at)];
  }
  if (of.text() && key.is_whole()) {
    const std::int64_t size = num_characters(*of.text(), budget), at = index_of(key, static_cast<std::size_t>(size));
    if (at >= 0 && at < size) return marked(characters_between(*of.text(), at, at + 1), is_markup(of));
  }
  return Undefined{to_text(key).bytes};
}

Value slice(const Value& of, const Value& start, const Value& stop, const Value& step, Budget& budget) {
  if (!of.text() && !of.list()) return Undefined{"a slice"};
  const bool is_part = of.text() && (!step.is_whole() || step.whole() == 1);  // of which no list is made
  const Values items = is_part ? Values() : items_of(of, budget);
  const std::int64_t size = is_part ? num_characters(*of.text(), budget) : std::ssize(items);
  require(step.is<Undefined>() || step.is<None>() || (step.is_whole() && step.whole() != 0),
          "the step of a slice is an integer other than 0");
  const std::int64_t by = step.is_whole() ? std::clamp(step.whole(), -size - 1, size + 1) : 1;
  const std::int64_t low = by < 0 ? -1 : 0;
  const std::int64_t last = clamped(stop, by < 0 ? -1 : size, low, size);
  const std::int64_t first = clamped(start, by < 0 ? size - 1 : 0, low, size);
  if (is_part) return marked(characters_between(*of.text(), first, std::max(first, last)), is_markup(of));
  Values kept;
  for (std::int64_t i = first; by < 0 ? i > last : i < last; i += by)
    kept.push_back(items[static_cast<std::size_t>(i)]);
  if (!of.text()) return Value::list(std::move(kept), of.list()->is_tuple);
  Text text;
  for (const Value& item : kept) text.append(*item.text());
  return marked(std::move(text), is_markup(of));
}

Values items_of(const Value& of, Budget& budget) {
  Values items;
  if (const List* list = of.list()) items = list->items;
  if (const Map* map = of.map())
    for (const auto& [key, item] : map->items) items.emplace_back(key);
  if (const Text* text = of.text())
    for (const Text& character : characters_of(*text, budget)) items.emplace_back(character);
  require(of.list() || of.map() || of.text() || of.is<Undefined>(), "{} has no items", of.kind());
  budget.step(std::ssize(items));
  return items;
}

}  // namespace echelon::jinja
