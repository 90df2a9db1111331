#include "data/template/operations.h"

#include <algorithm>
#include <cmath>

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
  if (of.text() && item.text()) return of.text()->bytes.find(item.text()->bytes) != std::string::npos;
  if (const Map* map = of.map()) return item.text() != nullptr && map->find(item.text()->bytes) != nullptr;
  require(of.list() != nullptr || of.is<Undefined>(), "`in` does not take {} in {}", item.kind(), of.kind());
  if (!of.list()) return false;
  budget.step(static_cast<std::int64_t>(of.list()->items.size()));
  return std::ranges::any_of(of.list()->items, [&](const Value& other) { return equal_in(item, other, budget); });
}

Value whole_result(std::string_view sign, std::int64_t a, std::int64_t b) {
  std::int64_t c = 0;
  bool overflows = false;
  if (sign == "+") overflows = __builtin_add_overflow(a, b, &c);
  if (sign == "-") overflows = __builtin_sub_overflow(a, b, &c);
  if (sign == "*") overflows = __builtin_mul_overflow(a, b, &c);
  if (sign == "//" || sign == "%") {
    require(b != 0, "division by zero");
    if (b == -1) return sign == "%" ? Value(std::int64_t{0}) : whole_result("-", 0, a);
    const std::int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
    c = sign == "%" ? a - quotient * b : quotient;
  }
  require(!overflows, "{} {} {} is not in 64 bits", a, sign, b);
  return c;
}

Value real_result(std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  require(b != 0, "division by zero");
  if (sign == "/") return a / b;
  return sign == "//" ? std::floor(a / b) : a - b * std::floor(a / b);
}

bool less(std::string_view sign, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.real() < b.real();
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
  if (sign == "<") return less(sign, a, b);
  if (sign == ">") return less(sign, b, a);
  if (sign == "<=") return !less(sign, b, a);
  if (sign == ">=") return !less(sign, a, b);
  if (sign == "+" && a.text() && b.text()) return joined(a, b, budget);
  if (sign == "+" && a.list() && b.list()) {
    Values items = a.list()->items;
    items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
    budget.step(static_cast<std::int64_t>(items.size()));
    return Value::list(std::move(items));
  }
  if (sign == "*" && a.text() && b.is_whole()) {
    Text text;
    for (std::int64_t i = 0; i < b.whole(); ++i) budget.step(), budget.append(text, *a.text());
    return text;
  }
  require(a.is_number() && b.is_number(), "{} {} {} is not defined", a.kind(), sign, b.kind());
  if (a.is_whole() && b.is_whole() && sign != "/") return whole_result(sign, a.whole(), b.whole());
  return real_result(sign, a.real(), b.real());
}

Value item_of(const Value& of, const Value& key, Budget& budget) {
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
    const std::vector<Text> characters = characters_of(*of.text(), budget);
    const std::int64_t at = index_of(key, characters.size());
    if (at >= 0 && at < std::ssize(characters)) return characters[static_cast<std::size_t>(at)];
  }
  return Undefined{to_text(key).bytes};
}

Value slice(const Value& of, const Value& start, const Value& stop, const Value& step, Budget& budget) {
  require(of.text() || of.list(), "{} has no slices", of.kind());
  const Values items = items_of(of, budget);
  const std::int64_t size = std::ssize(items);
  require(step.is<Undefined>() || step.is<None>() || (step.is_whole() && step.whole() != 0),
          "the step of a slice is an integer other than 0");
  const std::int64_t by = step.is_whole() ? std::clamp(step.whole(), -size - 1, size + 1) : 1;
  const std::int64_t low = by < 0 ? -1 : 0;
  const std::int64_t last = clamped(stop, by < 0 ? -1 : size, low, size);
  Values kept;
  for (std::int64_t i = clamped(start, by < 0 ? size - 1 : 0, low, size); by < 0 ? i > last : i < last; i += by)
    kept.push_back(items[static_cast<std::size_t>(i)]);
  if (!of.text()) return Value::list(std::move(kept));
  Text text;
  for (const Value& item : kept) text.append(*item.text());
  return text;
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

std::vector<Text> characters_of(const Text& text, Budget& budget) {
  std::vector<Text> characters;
  budget.grow(text.bytes.size());
  for (std::size_t at = 0, end = 0; at < text.bytes.size(); at = end) {
    end = at + 1;
    while (end < text.bytes.size() && (static_cast<unsigned char>(text.bytes[end]) & 0xc0U) == 0x80U) ++end;
    characters.push_back(text.part(at, end - at));
  }
  return characters;
}

}  // namespace echelon::jinja
