// Parses the statements of a template.
#include "base/error.h"
#include "data/template/expression_parser.h"
#include "data/template/syntax.h"

#include <algorithm>
#include <initializer_list>

namespace echelon::jinja {
namespace {

using Ends = std::initializer_list<std::string_view>;
constexpr int most_blocks = 50;

class Parser {
 public:
  explicit Parser(const std::vector<Token>& tokens) : tokens_(tokens) {}

  Block run() { return block({}); }

 private:
  /// Up to a tag with one of these names, which is left to be taken after its opening.
  Block block(Ends ends) {
    Block statements;
    const Place start = tokens_.peek().place;
    if (++depth_ > most_blocks) refuse(start, fmt::format("blocks are nested more than {} deep", most_blocks));
    while (tokens_.peek().kind != TokenKind::end) {
      const Token& token = tokens_.take();
      Statement statement;
      statement.place = token.place;
      if (token.kind == TokenKind::text) {
        statement.kind = StatementKind::text;
        statement.text = Text(token.text);
      } else if (token.kind == TokenKind::open_output) {
        statement.kind = StatementKind::output;
        statement.expression = tokens_.tuple(true);
        tokens_.expect(TokenKind::close_output, "");
      } else {
        if (std::ranges::find(ends, tokens_.peek().text) != ends.end()) return --depth_, std::move(statements);
        parse_tag(statement);
      }
      statements.push_back(std::move(statement));
    }
    if (ends.size() > 0) refuse(start, fmt::format("the block has no {}", *(ends.end() - 1)));
    return statements;
  }

  void close(std::string_view name) {
    tokens_.expect(TokenKind::name, name);
    close_tag();
  }
  void close_tag() { tokens_.expect(TokenKind::close_block, ""); }

  void parse_tag(Statement& statement) {
    const std::string name = tokens_.expect_name();
    if (name == "if") return branch(statement);
    if (name == "for") return loop(statement);
    if (name == "set") return set(statement);
    if (name == "macro") return macro(statement);
    statement.kind = StatementKind::generation;
    if (name == "generation") return enclosed(statement, "endgeneration");
    if (name == "call") return call(statement);
    if (name == "filter") return filter(statement);
    if (name == "with") return with(statement);
    if (name != "break" && name != "continue")
      refuse(statement.place, fmt::format("{{% {} %}} is not supported; supported are if, for, set, macro, "
                                          "call, filter, with, raw, generation, break and continue",
                                          name));
    if (loops_ == 0) refuse(statement.place, fmt::format("{} is outside a loop", name));
    statement.kind = name == "break" ? StatementKind::leave : StatementKind::next;
    close_tag();
  }

  void branch(Statement& statement) {
    statement.kind = StatementKind::branch;
    statement.expression = tokens_.expression();
    close_tag();
    statement.body = block({"elif", "else", "endif"});
    if (tokens_.is_name("elif")) {
      Statement inner;
      inner.place = tokens_.take().place;
      if (++depth_ > most_blocks) refuse(inner.place, "too many branches");
      branch(inner);
      --depth_;
      statement.otherwise.push_back(std::move(inner));
      return;
    }
    if (tokens_.accept(TokenKind::name, "else")) {
      close_tag();
      statement.otherwise = block({"endif"});
    }
    close("endif");
  }

  void targets(Statement& statement) {
    const bool is_enclosed = tokens_.accept(TokenKind::sign, "(");
    do statement.names.push_back(tokens_.expect_name());
    while (tokens_.accept(TokenKind::sign, ","));
    if (is_enclosed) tokens_.expect(TokenKind::sign, ")");
  }

  void loop(Statement& statement) {
    statement.kind = StatementKind::loop;
    targets(statement);
    tokens_.expect(TokenKind::name, "in");
    statement.expression = tokens_.tuple(false);
    if (tokens_.accept(TokenKind::name, "if")) statement.filter = tokens_.expression();
    if (tokens_.is_name("recursive")) refuse(tokens_.peek().place, "recursive loops are not supported");
    close_tag();
    ++loops_;
    statement.body = block({"else", "endfor"});
    --loops_;
    if (tokens_.accept(TokenKind::name, "else")) {
      close_tag();
      statement.otherwise = block({"endfor"});
    }
    close("endfor");
  }

  void set(Statement& statement) {
    statement.kind = StatementKind::set;
    targets(statement);
    if (statement.names.size() == 1 && tokens_.accept(TokenKind::sign, ".")) {
      statement.is_attribute = true;
      statement.names.push_back(tokens_.expect_name());
    }
    if (tokens_.accept(TokenKind::sign, "=")) {
      statement.expression = tokens_.tuple(true);
      return close_tag();
    }
    if (tokens_.is_sign("|")) statement.filter = tokens_.body_filters();
    enclosed(statement, "endset");
  }

  /// A body of its own: no break or continue leaves it.
  void enclosed(Statement& statement, std::string_view end) {
    close_tag();
    const int outer = std::exchange(loops_, 0);
    statement.body = block({end});
    loops_ = outer;
    close(end);
  }

  void call(Statement& statement) {
    statement.kind = StatementKind::call;
    statement.names.emplace_back("caller");
    if (tokens_.accept(TokenKind::sign, "(")) parameters(statement);
    statement.expression = tokens_.disjunction();
    if (statement.expression->kind != ExpressionKind::call) refuse(statement.place, "{% call %} needs a call");
    enclosed(statement, "endcall");
  }

  void filter(Statement& statement) {
    statement.kind = StatementKind::filter;
    statement.filter = tokens_.body_filters();
    enclosed(statement, "endfilter");
  }

  void with(Statement& statement) {
    statement.kind = StatementKind::with;
    while (tokens_.peek().kind == TokenKind::name) {
      statement.names.push_back(tokens_.expect_name());
      tokens_.expect(TokenKind::sign, "=");
      statement.defaults.push_back(tokens_.expression());
      if (!tokens_.accept(TokenKind::sign, ",")) break;
    }
    close_tag();
    statement.body = block({"endwith"});
    close("endwith");
  }

  void macro(Statement& statement) {
    statement.kind = StatementKind::macro;
    statement.names.push_back(tokens_.expect_name());
    tokens_.expect(TokenKind::sign, "(");
    parameters(statement);
    enclosed(statement, "endmacro");
  }

  void parameters(Statement& statement) {
    while (!tokens_.accept(TokenKind::sign, ")")) {
      statement.names.push_back(tokens_.expect_name());
      statement.defaults.push_back(tokens_.accept(TokenKind::sign, "=") ? tokens_.expression() : nullptr);
      if (!tokens_.is_sign(")")) tokens_.expect(TokenKind::sign, ",");
    }
  }

  ExpressionParser tokens_;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Template parse(std::string_view source) {
  Template parsed = {.block = Parser(tokens_of(source)).run(), .unset = {}};
  parsed.unset = find_unset_names(parsed.block);
  return parsed;
}

}  // namespace echelon::jinja
