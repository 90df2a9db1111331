#include "data/template/evaluator.h"

namespace echelon::jinja {
Value Evaluator::kind_of(const ExpressionNode& expression) {
  const auto part = [&](std::size_t i) { return evaluate(*expression.parts[i]); };
  switch (expression.kind) {
    case ExpressionKind::literal: return expression.literal;
    case ExpressionKind::name: return variable(expression.text);
    case ExpressionKind::list: return Value::list(arguments(expression, 0), expression.text == "tuple");
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
      require(value.is_number(), "{} has no sign", value.kind());
      if (value.is<double>()) return expression.text == "-" ? -value.real() : value.real();
      return binary(expression.text, std::int64_t{0}, value, budget_);
    }
    case ExpressionKind::comparison: return compare(expression);
    case ExpressionKind::binary: return evaluate_binary(expression);
    case ExpressionKind::conditional: return conditional(expression);
  }
  return {};
}

Value Evaluator::filter(const ExpressionNode& expression) {
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

/// Each operand is evaluated once, and none after the first comparison that fails.
Value Evaluator::compare(const ExpressionNode& expression) {
  Value left = evaluate(*expression.parts[0]);
  for (const auto& [sign, operand] : expression.named) {
    Value right = evaluate(*operand);
    place_ = expression.place;
    const bool is_not = sign == "not in";
    if (binary(is_not ? "in" : sign, left, right, budget_).is_true() == is_not) return false;
    left = std::move(right);
  }
  return true;
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
    const std::size_t place = place_of_argument(expression.text, name);
    require(place != 0, "{} has no argument {}", expression.text, name);
    if (values.size() <= place) values.resize(place + 1);
    values[place] = evaluate(*value);
  }
  return values;
}

}  // namespace echelon::jinja
