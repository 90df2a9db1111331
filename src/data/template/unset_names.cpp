// Which names have no value where a body starts. Jinja decides that when it compiles (its idtracking.py). A name that a
// body sets before it reads it is the body's own. Until it is set it has no value there and in the bodies inside, even
// if a variable of the same name is given. That is not so of a set in a branch of an `if`, nor of a name that a body
// around has.
#include "data/template/syntax.h"

#include <map>
#include <set>

namespace echelon::jinja {
namespace {

/// What a body does first with a name.
enum class FirstUse : std::uint8_t { other, set };

/// A body: a name that is used in it, outside of the bodies inside, or in a body around it, is known.
class Frame {
 public:
  explicit Frame(const Frame* around) : around_(around) {}

  void reads(const ExpressionPointer& expression) {
    if (!expression) return;
    if (expression->kind == ExpressionKind::name) uses(expression->text, FirstUse::other);
    for (const ExpressionPointer& part : expression->parts) reads(part);
    for (const auto& [name, part] : expression->named) reads(part);
  }
  void has(std::string_view parameter) { uses(parameter, FirstUse::other); }
  void sets(std::string_view name) { uses(name, num_branches_ > 0 ? FirstUse::other : FirstUse::set); }

  void runs(const Block& block) {
    for (const Statement& statement : block) runs(statement);
  }

  /// Once all of it was visited.
  [[nodiscard]] std::vector<std::string> unset() const {
    std::vector<std::string> names;
    for (const auto& [name, use] : first_uses_)
      if (use == FirstUse::set && (around_ == nullptr || !around_->knows(name))) names.emplace_back(name);
    return names;
  }

 private:
  void uses(std::string_view name, FirstUse use) { first_uses_.emplace(name, use); }
  [[nodiscard]] bool knows(std::string_view name) const {
    return first_uses_.contains(name) || (around_ != nullptr && around_->knows(name));
  }

  /// Not the bodies of other frames in it.
  void runs(const Statement& statement) {
    switch (statement.kind) {
      case StatementKind::text:
      case StatementKind::leave:
      case StatementKind::next:
      case StatementKind::generation: return;
      case StatementKind::output:
      case StatementKind::loop:
      case StatementKind::call: return reads(statement.expression);
      case StatementKind::filter: return reads(statement.filter);
      case StatementKind::macro: return sets(statement.names[0]);
      case StatementKind::with:
        for (const ExpressionPointer& value : statement.defaults) reads(value);
        return;
      case StatementKind::set:
        reads(statement.expression);
        if (statement.is_attribute) return has(statement.names[0]);
        for (const std::string& name : statement.names) sets(name);
        return;
      case StatementKind::branch:
        reads(statement.expression);
        ++num_branches_;
        runs(statement.body);
        runs(statement.otherwise);
        --num_branches_;
    }
  }

  const Frame* around_;
  std::map<std::string_view, FirstUse> first_uses_;
  int num_branches_ = 0;
};

void visit(Block& block, const Frame& frame);

/// The parameters of a body, which are known in it.
void has_parameters(const Statement& statement, Frame& frame) {
  for (std::size_t i = statement.kind == StatementKind::macro ? 1 : 0; i < statement.names.size(); ++i)
    frame.has(statement.names[i]);
  for (const char* name : {"caller", "varargs", "kwargs"})
    if (statement.kind != StatementKind::with) frame.has(name);
  if (statement.kind != StatementKind::with)
    for (const ExpressionPointer& value : statement.defaults) frame.reads(value);
}

void visit(Statement& statement, const Frame& around) {
  Frame frame(&around);
  switch (statement.kind) {
    case StatementKind::branch: visit(statement.body, around); return visit(statement.otherwise, around);
    case StatementKind::loop: {
      for (const std::string& name : statement.names) frame.has(name);
      frame.has("loop");
      Frame otherwise(&around);
      otherwise.runs(statement.otherwise);
      statement.unset_otherwise = otherwise.unset();
      visit(statement.otherwise, otherwise);
      break;
    }
    case StatementKind::macro:
    case StatementKind::call:
    case StatementKind::with: has_parameters(statement, frame); break;
    default: break;
  }
  frame.runs(statement.body);
  if (statement.kind == StatementKind::filter) frame.reads(statement.filter);
  statement.unset = frame.unset();
  visit(statement.body, frame);
}

void visit(Block& block, const Frame& frame) {
  for (Statement& statement : block) visit(statement, frame);
}

}  // namespace

std::vector<std::string> find_unset_names(Block& block) {
  Frame root(nullptr);
  root.runs(block);
  visit(block, root);
  return root.unset();
}

}  // namespace echelon::jinja
