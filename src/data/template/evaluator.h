// Runs the syntax tree of a template.
#pragma once

#include "data/template/operations.h"
#include "data/template/syntax.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace echelon::jinja {

using Scope = std::map<std::string, Value, std::less<>>;
/// The innermost is the last one.
using Scopes = std::vector<std::shared_ptr<Scope>>;
/// The names that a body sees where it is defined, with the values that they have when it runs. Scopes own their
/// macros, hence the weak pointers.
struct Closure {
  std::vector<std::weak_ptr<Scope>> scopes;
};

class Evaluator {
 public:
  Evaluator(const Map& variables, const RenderLimits& limits);
  Rendered render(const Template& whole);

 private:
  enum class Flow : std::uint8_t { normal, leave, next };

  Flow run(const Block& block);
  Flow run(const Statement& statement);
  Flow loop(const Statement& statement);
  void set(const Statement& statement);
  void call_block(const Statement& statement);
  Flow with(const Statement& statement);
  /// What the body prints, through the filters.
  Value body(const Statement& statement);
  void assign(const std::vector<std::string>& names, const Value& value);
  void generation(const Statement& statement);
  /// Where these names have no value.
  void enter_scope(const std::vector<std::string>& unset);
  Scope& innermost() { return *scopes_.back(); }
  /// With all that is seen here.
  Callable callable_of(const Statement& statement);
  Scopes scopes_of(const Callable& callable);
  /// What the statement's body prints.
  Text captured(const Statement& statement);

  Value evaluate(const ExpressionNode& expression);
  Value kind_of(const ExpressionNode& expression);
  Value filter(const ExpressionNode& expression);
  Value evaluate_binary(const ExpressionNode& expression);
  Value conditional(const ExpressionNode& expression);
  Value map_of(const ExpressionNode& expression);
  Value call(const ExpressionNode& expression);
  Value call_macro(const Callable& callable, const ExpressionNode& call);
  Value call_loop(const Map& loop, const ExpressionNode& call);
  Value compare(const ExpressionNode& expression);
  Value call_global(const std::string& name, const ExpressionNode& call);
  Values arguments(const ExpressionNode& expression, std::size_t from);
  Value optional(const ExpressionNode& expression, std::size_t part);
  [[nodiscard]] Value variable(const std::string& name) const;

  Budget budget_;
  Scopes scopes_;
  std::map<const ExpressionNode*, Callable> caller_of_;
  std::vector<Values> changed_;  // by loop: what `changed` was given last
  Text* out_ = nullptr;
  Rendered result_;
  Place place_;
  int depth_ = 0;
};

}  // namespace echelon::jinja
