#include "data/template/expression_parser.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace echelon::jinja {
namespace {

constexpr int most_nested = 50;
const std::array<std::vector<std::string_view>, 6> levels = {
    {{"or"}, {"and"}, {}, {"+", "-"}, {"~"}, {"*", "/", "//", "%"}}};
constexpr std::size_t not_level = 2;

ExpressionPointer node(ExpressionKind kind, Place place, std::string text = "") {
  auto expression = std::make_unique<ExpressionNode>();
  expression->kind = kind;
  expression->place = place;
  expression->text = std::move(text);
  return expression;
}

template <class... Parts>
ExpressionPointer node_of(ExpressionKind kind, Place place, std::string text, Parts... parts) {
  ExpressionPointer expression = node(kind, place, std::move(text));
  (expression->parts.push_back(std::move(parts)), ...);
  return expression;
}

ExpressionPointer literal(Place place, Value value) {
  ExpressionPointer expression = node(ExpressionKind::literal, place);
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

bool ExpressionParser::accept(TokenKind kind, std::string_view text) {
  if (!is(kind, text)) return false;
  take();
  return true;
}

void ExpressionParser::expect(TokenKind kind, std::string_view text) {
  if (!accept(kind, text))
    refuse(peek().place, fmt::format("expected '{}' instead of '{}'", text.empty() ? "end of tag" : text, peek().text));
}

std::string ExpressionParser::expect_name() {
  if (peek().kind != TokenKind::name) refuse(peek().place, "expected a name");
  return take().text;
}

ExpressionPointer ExpressionParser::expression() {
  const Place place = peek().place;
  if (++depth_ > most_nested) refuse(place, fmt::format("expressions are nested more than {} deep", most_nested));
  ExpressionPointer value = left(0);
  while (accept(TokenKind::name, "if")) {
    ExpressionPointer condition = left(0), otherwise;
    if (accept(TokenKind::name, "else")) otherwise = expression();
    value =
        node_of(ExpressionKind::conditional, place, "", std::move(value), std::move(condition), std::move(otherwise));
  }
  --depth_;
  return value;
}

/// Binary operators that group from the left.
ExpressionPointer ExpressionParser::left(std::size_t level) {
  if (level == not_level) return negation();
  if (level == levels.size()) return unary(true);
  ExpressionPointer value = left(level + 1);
  const auto operates = [&] {
    return (peek().kind == TokenKind::sign || peek().kind == TokenKind::name) &&
           std::ranges::find(levels.at(level), peek().text) != levels.at(level).end();
  };
  for (int num_operators = 0; operates(); ++num_operators) {
    const Token& sign = take();
    if (num_operators == most_nested) refuse(sign.place, "too many operators in one expression");
    value = node_of(ExpressionKind::binary, sign.place, sign.text, std::move(value), left(level + 1));
  }
  return value;
}

ExpressionPointer ExpressionParser::negation() {
  const Place place = peek().place;
  int num_nots = 0;
  while (accept(TokenKind::name, "not")) ++num_nots;
  ExpressionPointer value = comparison();
  for (int i = 0; i < std::min(num_nots, 2 - num_nots % 2); ++i)
    value = node_of(ExpressionKind::unary, place, "not", std::move(value));
  return value;
}

ExpressionPointer ExpressionParser::comparison() {
  ExpressionPointer value = left(not_level + 1);
  static constexpr std::array<std::string_view, 7> signs = {"==", "!=", "<", "<=", ">", ">=", "in"};
  const Token& sign = peek();
  const bool is_not = is_name("not");
  if (!is_not && (std::ranges::find(signs, sign.text) == signs.end() || sign.kind == TokenKind::string)) return value;
  take();
  if (is_not) expect(TokenKind::name, "in");
  value = node_of(ExpressionKind::binary, sign.place, is_not ? "in" : sign.text, std::move(value), left(not_level + 1));
  if (is_not) value = node_of(ExpressionKind::unary, sign.place, "not", std::move(value));
  if (std::ranges::find(signs, peek().text) != signs.end() && peek().kind != TokenKind::string)
    refuse(peek().place, "chained comparisons are not supported; write `and`");
  return value;
}

ExpressionPointer ExpressionParser::unary(bool with_filters) {
  const Place place = peek().place;
  if (is_sign("-") || is_sign("+")) {
    const std::string sign = take().text;
    if (++depth_ > most_nested) refuse(place, "too many signs");
    ExpressionPointer value = node_of(ExpressionKind::unary, place, sign, unary(false));
    --depth_;
    return with_filters ? filters(std::move(value)) : std::move(value);
  }
  ExpressionPointer value = postfix(primary());
  if (is_sign("**")) refuse(peek().place, "the operator ** is not supported");
  return with_filters ? filters(std::move(value)) : std::move(value);
}

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
  if (is_sign(")")) return list(")");
  ExpressionPointer first = expression();
  if (accept(TokenKind::sign, ")")) return first;
  expect(TokenKind::sign, ",");
  ExpressionPointer rest = list(")");
  rest->parts.insert(rest->parts.begin(), std::move(first));
  return rest;
}

ExpressionPointer ExpressionParser::literal_name(const Token& token) {
  const std::string& name = token.text;
  if (name == "true" || name == "True") return literal(token.place, true);
  if (name == "false" || name == "False") return literal(token.place, false);
  if (name == "none" || name == "None") return literal(token.place, None{});
  return node(ExpressionKind::name, token.place, name);
}

ExpressionPointer ExpressionParser::list(std::string_view close) {
  ExpressionPointer value = node(ExpressionKind::list, peek().place);
  while (!accept(TokenKind::sign, close)) {
    value->parts.push_back(expression());
    if (!is_sign(close)) expect(TokenKind::sign, ",");
  }
  return value;
}

ExpressionPointer ExpressionParser::map() {
  ExpressionPointer value = node(ExpressionKind::map, peek().place);
  while (!accept(TokenKind::sign, "}")) {
    value->parts.push_back(expression());
    expect(TokenKind::sign, ":");
    value->parts.push_back(expression());
    if (!is_sign("}")) expect(TokenKind::sign, ",");
  }
  return value;
}

}  // namespace echelon::jinja
