// The syntax tree of a template.
#pragma once

#include "data/template/lexer.h"
#include "data/template/value.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace echelon::jinja {

struct ExpressionNode;
using ExpressionPointer = std::unique_ptr<ExpressionNode>;

enum class ExpressionKind : std::uint8_t {
  literal,
  name,
  list,
  map,          // keys and values, alternating
  attribute,    // parts[0].text
  item,         // parts[0][parts[1]]
  slice,        // parts[0][parts[1]:parts[2]:parts[3]], of which any but the first may be null
  call,         // parts[0](parts[1], ...)
  filter,       // parts[0] | text(parts[1], ...)
  test,         // parts[0] is text(parts[1], ...)
  unary,        // text is "not" or "-"
  comparison,   // parts[0], then signs and operands in `named`
  binary,       // text is the operator; `and` and `or` too
  conditional,  // parts[0] if parts[1] else parts[2], which may be null
};

struct ExpressionNode {
  ExpressionKind kind{};
  Place place;
  std::string text;
  Value literal;
  std::vector<ExpressionPointer> parts;
  std::vector<std::pair<std::string, ExpressionPointer>> named;  // arguments with a name; operands of a comparison
};

[[nodiscard]] inline ExpressionPointer make_node(ExpressionKind kind, Place place, std::string_view text = {}) {
  auto expression = std::make_unique<ExpressionNode>();
  expression->kind = kind;
  expression->place = place;
  expression->text = text;
  return expression;
}

using Block = std::vector<Statement>;

/// A variable that no template can name: the text that a filter or a set with filters encloses.
inline constexpr std::string_view name_of_body = "%body";

enum class StatementKind : std::uint8_t {
  text,
  output,
  branch,
  loop,
  set,
  macro,
  call,
  filter,
  with,
  leave,
  next,
  generation
};

struct Statement {
  StatementKind kind{};
  Place place;
  Text text;
  std::vector<std::string> names;           // targets of a loop or a set; a macro and its parameters; "ns.x" is two
                                            // a call block's are those of its `caller`
  bool is_attribute = false;                // the set is of names[0].names[1]
  ExpressionPointer expression;             // condition, sequence or value; null in a set that has a body
  ExpressionPointer filter;                 // of a loop: for x in y if filter; of a set or a filter: of name_of_body
  std::vector<ExpressionPointer> defaults;  // of a macro's parameters; null where there is none; values of a with
  Block body, otherwise;
  std::vector<std::string> unset, unset_otherwise;  // names that have no value where these start (unset_names.cpp)
};

struct Template {
  Block block;
  std::vector<std::string> unset;
};

/// Throws Error with line and column.
[[nodiscard]] Template parse(std::string_view source);

/// Of the bodies in the block, which get theirs, and returns those of the block.
[[nodiscard]] std::vector<std::string> find_unset_names(Block& block);

}  // namespace echelon::jinja
