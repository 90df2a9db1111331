// `value is name(arguments)`.
#include "data/template/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace echelon::jinja {
namespace {

std::optional<bool> compared(std::string_view name, const Values& arguments, Budget& budget) {
  static constexpr std::array<std::array<std::string_view, 2>, 13> signs = {{{"equalto", "=="},
                                                                             {"eq", "=="},
                                                                             {"ne", "!="},
                                                                             {"lt", "<"},
                                                                             {"lessthan", "<"},
                                                                             {"gt", ">"},
                                                                             {"greaterthan", ">"},
                                                                             {"le", "<="},
                                                                             {"ge", ">="},
                                                                             {"in", "in"},
                                                                             {"==", "=="},
                                                                             {"!=", "!="},
                                                                             {"<", "<"}}};
  const auto sign = std::ranges::find_if(signs, [&](const auto& pair) { return pair[0] == name; });
  if (sign == signs.end() || arguments.size() != 2) return std::nullopt;
  return binary((*sign)[1], arguments[0], arguments[1], budget).is_true();
}

std::optional<bool> divided(std::string_view name, const Values& arguments, Budget& budget) {
  if (name != "odd" && name != "even" && name != "divisibleby") return std::nullopt;
  const Value by = name == "divisibleby" ? argument(arguments, 1) : Value(std::int64_t{2});
  const Value rest = binary("%", arguments[0], by, budget);
  return equal(rest, name == "odd" ? std::int64_t{1} : std::int64_t{0});
}

}  // namespace

bool tested(std::string_view name, const Values& arguments, Budget& budget) {
  const Value& of = arguments[0];
  if (name == "defined") return !of.is<Undefined>();
  if (name == "undefined") return of.is<Undefined>();
  if (name == "none") return of.is<None>();
  if (name == "string") return of.text() != nullptr;
  if (name == "mapping") return of.map() != nullptr;
  if (name == "iterable" || name == "sequence") return of.list() || of.map() || of.text() || of.is<Undefined>();
  if (name == "boolean") return of.is<bool>();
  if (name == "integer") return of.is<std::int64_t>();
  if (name == "float") return of.is<double>();
  if (name == "callable") return of.is<Callable>();
  if (name == "upper" || name == "lower")
    return method(name == "upper" ? "isupper" : "islower", {text_of(of, budget)}, budget).is_true();
  if (name == "number") return of.is_number();
  if (name == "true" || name == "false") return of.is<bool>() && of.as<bool>() == (name == "true");
  if (const auto result = compared(name, arguments, budget)) return *result;
  if (const auto result = divided(name, arguments, budget)) return *result;
  throw Error(fmt::format("the test {} is not supported", name));
}

}  // namespace echelon::jinja
