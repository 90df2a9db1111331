// Literals, lists, mappings and tuples.
#include "data/template/expression_parser.h"

#include "base/error.h"

#include <algorithm>
#include <charconv>

namespace echelon::jinja {
namespace {

ExpressionPointer literal(Place place, Value value) {
  ExpressionPointer expression = make_node(ExpressionKind::literal, place);
  expression->literal = std::move(value);
  return expression;
}

template <class T>
T number(const Token& token) {
  std::string digits = token.text;
  std::erase(digits, '_');
  T value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) refuse(token.place, token.text + " is too large");
  return value;
}

}  // namespace

ExpressionPointer ExpressionParser::primary() {
  const Token& token = take();
  switch (token.kind) {
    case TokenKind::name: return literal_name(token);
    case TokenKind::whole: return literal(token.place, number<std::int64_t>(token));
    case TokenKind::real: return literal(token.place, number<double>(token));
    case TokenKind::string: {
      std::string text = token.text;
      while (peek().kind == TokenKind::string) text += take().text;
      return literal(token.place, Text(text));
    }
    default: break;
  }
  if (token.kind == TokenKind::sign && token.text == "[") return list("]");
  if (token.kind == TokenKind::sign && token.text == "{") return map();
  if (token.kind != TokenKind::sign || token.text != "(")
    refuse(token.place, fmt::format("expected an expression instead of '{}'", token.text));
  return parenthesis();
}

ExpressionPointer ExpressionParser::parenthesis() {
  ExpressionPointer first = is_sign(")") ? nullptr : expression();
  if (first && accept(TokenKind::sign, ")")) return first;
  if (first) expect(TokenKind::sign, ",");
  ExpressionPointer rest = list(")");
  if (first) rest->parts.insert(rest->parts.begin(), std::move(first));
  rest->text = "tuple";
  return rest;
}

ExpressionPointer ExpressionParser::tuple(bool with_conditions) {
  const auto item = [&] { return with_conditions ? expression() : disjunction(); };
  ExpressionPointer first = item();
  if (!is_sign(",")) return first;
  ExpressionPointer items = make_node(ExpressionKind::list, first->place, "tuple");
  items->parts.push_back(std::move(first));
  while (accept(TokenKind::sign, ",") && peek().kind != TokenKind::close_block &&
         peek().kind != TokenKind::close_output)
    items->parts.push_back(item());
  return items;
}

ExpressionPointer ExpressionParser::literal_name(const Token& token) {
  const std::string& name = token.text;
  if (name == "true" || name == "True") return literal(token.place, true);
  if (name == "false" || name == "False") return literal(token.place, false);
  if (name == "none" || name == "None") return literal(token.place, None{});
  return make_node(ExpressionKind::name, token.place, name);
}

ExpressionPointer ExpressionParser::list(std::string_view close) {
  ExpressionPointer value = make_node(ExpressionKind::list, peek().place);
  while (!accept(TokenKind::sign, close)) {
    value->parts.push_back(expression());
    if (!is_sign(close)) expect(TokenKind::sign, ",");
  }
  return value;
}

ExpressionPointer ExpressionParser::map() {
  ExpressionPointer value = make_node(ExpressionKind::map, peek().place);
  while (!accept(TokenKind::sign, "}")) {
    value->parts.push_back(expression());
    expect(TokenKind::sign, ":");
    value->parts.push_back(expression());
    if (!is_sign("}")) expect(TokenKind::sign, ",");
  }
  return value;
}

}  // namespace echelon::jinja
