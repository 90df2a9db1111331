#include "data/template/expression_parser.h"

#include "base/error.h"

#include <algorithm>
#include <array>

namespace echelon::jinja {
namespace {

constexpr int most_nested = 50;
const std::array<std::vector<std::string_view>, 7> levels = {
    {{"or"}, {"and"}, {}, {"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}};
constexpr std::size_t not_level = 2;

template <class... Parts>
ExpressionPointer node_of(ExpressionKind kind, Place place, std::string_view text, Parts... parts) {
  ExpressionPointer expression = make_node(kind, place, text);
  (expression->parts.push_back(std::move(parts)), ...);
  return expression;
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
  static constexpr std::array<std::string_view, 8> signs = {"==", "!=", "<", "<=", ">", ">=", "in", "not"};
  const Token& first = peek();
  const auto compares = [&] {
    return (peek().kind == TokenKind::sign || peek().kind == TokenKind::name) &&
           std::ranges::find(signs, peek().text) != signs.end();
  };
  if (!compares()) return value;
  ExpressionPointer result = node_of(ExpressionKind::comparison, first.place, "", std::move(value));
  while (compares()) {
    const Token& sign = take();
    const bool is_not = sign.text == "not";
    if (is_not) expect(TokenKind::name, "in");
    if (result->named.size() == most_nested) refuse(sign.place, "too many operators in one expression");
    result->named.emplace_back(is_not ? "not in" : sign.text, left(not_level + 1));
  }
  return result;
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
  return with_filters ? filters(std::move(value)) : std::move(value);
}

}  // namespace echelon::jinja
