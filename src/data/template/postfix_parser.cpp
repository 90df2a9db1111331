// What follows a value: attributes, subscripts, calls, filters and tests.
#include "data/template/expression_parser.h"

#include "base/error.h"

#include <algorithm>
#include <array>

namespace echelon::jinja {
namespace {

constexpr int most_postfixes = 100;

ExpressionPointer applied(ExpressionKind kind, const Token& token, ExpressionPointer of) {
  ExpressionPointer expression = make_node(kind, token.place, token.text);
  expression->parts.push_back(std::move(of));
  return expression;
}

}  // namespace

ExpressionPointer ExpressionParser::postfix(ExpressionPointer of) {
  for (int i = 0;; ++i) {
    const Token& token = peek();
    if (i == most_postfixes) refuse(token.place, "too many attributes in one expression");
    if (accept(TokenKind::sign, ".")) {
      of = applied(ExpressionKind::attribute, peek(), std::move(of));
      expect_name();
    } else if (accept(TokenKind::sign, "[")) {
      of = subscript(std::move(of), token.place);
    } else if (is_sign("(")) {
      of = applied(ExpressionKind::call, token, std::move(of));
      arguments(*of);
    } else {
      return of;
    }
  }
}

ExpressionPointer ExpressionParser::subscript(ExpressionPointer of, Place place) {
  of = applied(ExpressionKind::item, {.kind = TokenKind::sign, .text = "", .place = place}, std::move(of));
  const auto bound = [&] { return is_sign(":") || is_sign("]") ? nullptr : expression(); };
  of->parts.push_back(bound());
  if (!is_sign(":")) {
    if (!of->parts[1]) refuse(place, "the subscript is empty");
  } else {
    of->kind = ExpressionKind::slice;
    for (int i = 0; i < 2; ++i) of->parts.push_back(accept(TokenKind::sign, ":") ? bound() : nullptr);
  }
  expect(TokenKind::sign, "]");
  return of;
}

ExpressionPointer ExpressionParser::filters(ExpressionPointer of) {
  for (int i = 0;; ++i) {
    const Token& token = peek();
    if (i == most_postfixes) refuse(token.place, "too many filters in one expression");
    if (accept(TokenKind::sign, "|")) {
      of = applied(ExpressionKind::filter, peek(), std::move(of));
      expect_name();
      if (is_sign("(")) arguments(*of);
    } else if (accept(TokenKind::name, "is")) {
      of = test(std::move(of));
    } else if (is_sign("(")) {
      of = applied(ExpressionKind::call, token, std::move(of));
      arguments(*of);
    } else {
      return of;
    }
  }
}

ExpressionPointer ExpressionParser::body_filters() {
  ExpressionPointer body = make_node(ExpressionKind::name, peek().place, name_of_body);
  if (is_sign("|")) return filters(std::move(body));
  body = applied(ExpressionKind::filter, peek(), std::move(body));
  expect_name();
  if (is_sign("(")) arguments(*body);
  return filters(std::move(body));
}

ExpressionPointer ExpressionParser::test(ExpressionPointer of) {
  const bool is_not = accept(TokenKind::name, "not");
  const Token& name = peek();
  of = applied(ExpressionKind::test, name, std::move(of));
  expect_name();
  static constexpr std::array<std::string_view, 5> none = {"else", "or", "and", "is", "if"};
  const bool is_word = peek().kind == TokenKind::name && std::ranges::find(none, peek().text) == none.end() &&
                       peek().text != "not" && peek().text != "in";
  const bool is_value = is_word || is_sign("{") || peek().kind == TokenKind::string ||
                        peek().kind == TokenKind::whole || peek().kind == TokenKind::real || is_sign("[");
  if (is_sign("(")) {
    arguments(*of);
  } else if (is_value) {
    of->parts.push_back(postfix(primary()));
  }
  if (is_not)
    of = applied(ExpressionKind::unary, {.kind = TokenKind::name, .text = "not", .place = name.place}, std::move(of));
  return of;
}

void ExpressionParser::arguments(ExpressionNode& call) {
  expect(TokenKind::sign, "(");
  while (!accept(TokenKind::sign, ")")) {
    if (is_sign("*") || is_sign("**")) refuse(peek().place, "arguments with * are not supported");
    ExpressionPointer value = expression();
    if (value->kind == ExpressionKind::name && accept(TokenKind::sign, "=")) {
      call.named.emplace_back(value->text, expression());
    } else {
      call.parts.push_back(std::move(value));
    }
    if (!is_sign(")")) expect(TokenKind::sign, ",");
  }
}

}  // namespace echelon::jinja
