#include "data/template/evaluator.h"

#include <fmt/format.h>

#include <array>
#include <ctime>

namespace echelon::jinja {
namespace {

std::string time_text(const std::string& format) {
  std::array<char, 256> text{};
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  require(format.size() <= 64, "a format of strftime_now has more than 64 bytes");
  return {text.data(), std::strftime(text.data(), text.size(), format.c_str(), &local)};
}

}  // namespace

Value Evaluator::kind_of(const ExpressionNode& expression) {
  const auto part = [&](std::size_t i) { return evaluate(*expression.parts[i]); };
  switch (expression.kind) {
    case ExpressionKind::literal: return expression.literal;
    case ExpressionKind::name: return variable(expression.text);
    case ExpressionKind::list: return Value::list(arguments(expression, 0));
    case ExpressionKind::map: return map_of(expression);
    case ExpressionKind::attribute: return item_of(part(0), Text(expression.text), budget_);
    case ExpressionKind::item: {
      const Value of = part(0);
      return item_of(of, part(1), budget_);
    }
    case ExpressionKind::slice: {
      const Value of = part(0), start = optional(expression, 1), stop = optional(expression, 2);
      return slice(of, start, stop, optional(expression, 3), budget_);
    }
    case ExpressionKind::call: return call(expression);
    case ExpressionKind::filter: return filter(expression);
    case ExpressionKind::test: return tested(expression.text, arguments(expression, 0), budget_);
    case ExpressionKind::unary: {
      const Value value = part(0);
      if (expression.text == "not") return !value.is_true();
      return binary(expression.text, std::int64_t{0}, value, budget_);
    }
    case ExpressionKind::binary: return evaluate_binary(expression);
    case ExpressionKind::conditional: return conditional(expression);
  }
  return {};
}

Value Evaluator::filter(const ExpressionNode& expression) {
  require(expression.text != "tojson" || expression.parts.size() == 1, "tojson takes only arguments with names");
  const bool is_attribute = expression.text == "map" && !expression.named.empty();
  return filtered(is_attribute ? "map attribute" : expression.text, arguments(expression, 0), budget_);
}

Value Evaluator::evaluate_binary(const ExpressionNode& expression) {
  Value left = evaluate(*expression.parts[0]);
  if (expression.text == "and" || expression.text == "or")
    return left.is_true() == (expression.text == "or") ? left : evaluate(*expression.parts[1]);
  const Value right = evaluate(*expression.parts[1]);
  place_ = expression.place;
  return binary(expression.text, left, right, budget_);
}

Value Evaluator::conditional(const ExpressionNode& expression) {
  if (evaluate(*expression.parts[1]).is_true()) return evaluate(*expression.parts[0]);
  return optional(expression, 2);
}

Value Evaluator::map_of(const ExpressionNode& expression) {
  Map map;
  for (std::size_t i = 0; i < expression.parts.size(); i += 2) {
    const Value key = evaluate(*expression.parts[i]);
    require(key.text() != nullptr, "{} as a key is not supported", key.kind());
    map.set(*key.text(), evaluate(*expression.parts[i + 1]));
  }
  return Value::map(std::move(map));
}

Value Evaluator::optional(const ExpressionNode& expression, std::size_t part) {
  const bool is_missing = part >= expression.parts.size() || !expression.parts[part];
  return is_missing ? Value() : evaluate(*expression.parts[part]);
}

Values Evaluator::arguments(const ExpressionNode& expression, std::size_t from) {
  Values values;
  for (std::size_t i = from; i < expression.parts.size(); ++i) values.push_back(evaluate(*expression.parts[i]));
  for (const auto& [name, value] : expression.named) {
    const bool is_known = (expression.text == "tojson" && (name == "indent" || name == "ensure_ascii")) ||
                          (expression.text == "map" && name == "attribute");
    require(is_known || expression.text.empty(), "{} has no argument {}", expression.text, name);
    Value given = evaluate(*value);
    if (name != "ensure_ascii") {
      values.push_back(std::move(given));
    } else {
      require(!given.is_true(), "tojson with ensure_ascii=true is not supported");
    }
  }
  return values;
}

Value Evaluator::call(const ExpressionNode& expression) {
  const ExpressionNode& of = *expression.parts[0];
  if (of.kind == ExpressionKind::attribute) {
    require(expression.named.empty(), "arguments with names are not supported in {}", of.text);
    Values values{evaluate(*of.parts[0])};
    for (Value& value : arguments(expression, 1)) values.push_back(std::move(value));
    return method(of.text, values, budget_);
  }
  const Value function = evaluate(of);
  require(!function.is<Undefined>(), "'{}' is undefined", of.text);
  require(function.is<Callable>(), "{} is not a function", function.kind());
  const Callable& callable = function.as<Callable>();
  return callable.macro ? call_macro(*callable.macro, expression) : call_global(callable.name, expression);
}

Value Evaluator::call_macro(const Statement& macro, const ExpressionNode& call) {
  Scope scope;
  const std::size_t num_values = call.parts.size() - 1;
  require(num_values <= macro.defaults.size(), "{} takes at most {} arguments", macro.names[0], macro.defaults.size());
  for (std::size_t i = 0; i < macro.defaults.size(); ++i)
    scope[macro.names[i + 1]] = i < num_values      ? evaluate(*call.parts[i + 1])
                                : macro.defaults[i] ? evaluate(*macro.defaults[i])
                                                    : Value(Undefined{macro.names[i + 1]});
  for (const auto& [name, value] : call.named) {
    require(scope.contains(name), "{} has no argument {}", macro.names[0], name);
    scope[name] = evaluate(*value);
  }
  std::vector<Scope> outer = std::exchange(scopes_, {scopes_[0], std::move(scope)});
  require((depth_ += 20) <= 1000, "macros call each other too deep");
  Value result = captured(macro.body);
  depth_ -= 20;
  scopes_ = std::move(outer);
  return result;
}

Value Evaluator::call_global(const std::string& name, const ExpressionNode& call) {
  if (name == "namespace") {
    auto made = std::make_shared<Namespace>();
    require(call.parts.size() == 1, "namespace takes only arguments with names");
    for (const auto& [key, value] : call.named) made->map.set(Text(key), evaluate(*value));
    return made;
  }
  const Values values = arguments(call, 1);
  if (name == "raise_exception")
    throw Error(fmt::format("the template refuses: {}", values.empty() ? "" : text_of(values[0], budget_).bytes));
  if (name == "strftime_now") {
    require(values.size() == 1 && values[0].text(), "strftime_now takes a string");
    return Text(time_text(values[0].text()->bytes));
  }
  require(!values.empty() && values.size() <= 2 && values[0].is_whole() && values.back().is_whole(),
          "range takes one or two integers");
  Values items;
  for (std::int64_t i = values.size() > 1 ? values[0].whole() : 0; i < values.back().whole(); ++i) {
    budget_.step();
    items.emplace_back(i);
  }
  return Value::list(std::move(items));
}

}  // namespace echelon::jinja
