// Parses the expressions of a template by recursive descent, in Jinja's order of precedence.
#pragma once

#include "data/template/syntax.h"

#include <string_view>
#include <vector>

namespace echelon::jinja {

/// The tokens that are left; `parse` below uses it for statements too.
class ExpressionParser {
 public:
  explicit ExpressionParser(const std::vector<Token>& tokens) : tokens_(tokens) {}

  [[nodiscard]] const Token& peek() const { return tokens_[at_]; }
  const Token& take() { return tokens_[peek().kind == TokenKind::end ? at_ : at_++]; }
  [[nodiscard]] bool is_sign(std::string_view sign) const { return is(TokenKind::sign, sign); }
  [[nodiscard]] bool is_name(std::string_view name) const { return is(TokenKind::name, name); }
  bool accept(TokenKind kind, std::string_view text);
  void expect(TokenKind kind, std::string_view text);
  std::string expect_name();

  /// Everything, or without `a if b else c`, as after `for x in`.
  ExpressionPointer expression();
  ExpressionPointer disjunction() { return left(0); }
  /// The same, or several with commas, which are a tuple.
  ExpressionPointer tuple(bool with_conditions);
  /// Filters of name_of_body: `upper | trim`, with `|` before the first one or without.
  ExpressionPointer body_filters();

 private:
  [[nodiscard]] bool is(TokenKind kind, std::string_view text) const {
    return peek().kind == kind && peek().text == text;
  }
  ExpressionPointer left(std::size_t level);
  ExpressionPointer negation();
  ExpressionPointer comparison();
  ExpressionPointer unary(bool with_filters);
  ExpressionPointer parenthesis();
  ExpressionPointer primary();
  ExpressionPointer literal_name(const Token& token);
  ExpressionPointer list(std::string_view close);
  ExpressionPointer map();
  ExpressionPointer postfix(ExpressionPointer of);
  ExpressionPointer subscript(ExpressionPointer of, Place place);
  ExpressionPointer filters(ExpressionPointer of);
  ExpressionPointer test(ExpressionPointer of);
  void arguments(ExpressionNode& call);

  const std::vector<Token>& tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace echelon::jinja
