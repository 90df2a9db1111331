#include "data/template/evaluator.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon::jinja {
namespace {

constexpr int most_evaluations = 1000;  // inside each other, so that the stack is bounded

std::int64_t whole_of(std::size_t value) { return static_cast<std::int64_t>(value); }

Value loop_variable(const Values& items, std::size_t i, std::size_t number) {
  Map loop;
  loop.loop = static_cast<int>(number);
  loop.set(Text("index"), whole_of(i + 1));
  loop.set(Text("index0"), whole_of(i));
  loop.set(Text("revindex"), whole_of(items.size() - i));
  loop.set(Text("revindex0"), whole_of(items.size() - i - 1));
  loop.set(Text("first"), i == 0);
  loop.set(Text("last"), i + 1 == items.size());
  loop.set(Text("length"), whole_of(items.size()));
  loop.set(Text("depth"), whole_of(1));
  loop.set(Text("depth0"), whole_of(0));
  if (i > 0) loop.set(Text("previtem"), items[i - 1]);
  if (i + 1 < items.size()) loop.set(Text("nextitem"), items[i + 1]);
  return Value::map(std::move(loop));
}

}  // namespace

Evaluator::Evaluator(const Map& variables, const RenderLimits& limits)
    : budget_(limits), scopes_{std::make_shared<Scope>()} {
  for (const char* name : {"range", "namespace", "dict", "raise_exception", "strftime_now"})
    innermost()[name] = Callable{.name = name};
  for (const auto& [key, value] : variables.items) innermost()[key.bytes] = value;
}

Rendered Evaluator::render(const Template& whole) {
  out_ = &result_.text;
  for (const std::string& name : whole.unset) innermost()[name] = Undefined{name};
  try {
    run(whole.block);
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with("chat template, ")) throw;
    refuse(place_, error.what());
  }
  return std::move(result_);
}

Evaluator::Flow Evaluator::run(const Block& block) {
  for (const Statement& statement : block) {
    place_ = statement.place;
    budget_.step();
    if (const Flow flow = run(statement); flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run(const Statement& statement) {
  switch (statement.kind) {
    case StatementKind::text: budget_.append(*out_, statement.text); break;
    case StatementKind::output: out_->append(text_of(evaluate(*statement.expression), budget_)); break;
    case StatementKind::branch:
      return run(evaluate(*statement.expression).is_true() ? statement.body : statement.otherwise);
    case StatementKind::loop: return loop(statement);
    case StatementKind::set: set(statement); break;
    case StatementKind::macro: innermost()[statement.names[0]] = callable_of(statement); break;
    case StatementKind::call: call_block(statement); break;
    case StatementKind::filter: out_->append(text_of(body(statement), budget_)); break;
    case StatementKind::with: return with(statement);
    case StatementKind::leave: return Flow::leave;
    case StatementKind::next: return Flow::next;
    case StatementKind::generation: generation(statement); break;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::loop(const Statement& statement) {
  Values items = items_of(evaluate(*statement.expression), budget_);
  changed_.emplace_back();
  const std::size_t number = changed_.size();
  enter_scope({});
  if (statement.filter)
    std::erase_if(items, [&](const Value& item) {
      assign(statement.names, item);
      return !evaluate(*statement.filter).is_true();
    });
  Flow flow = Flow::normal;
  bool has_completed = false;  // an iteration: with `continue` in all of them Jinja takes the else branch too
  for (std::size_t i = 0; i < items.size() && flow != Flow::leave; ++i) {
    scopes_.pop_back();
    enter_scope(statement.unset);
    innermost()["loop"] = loop_variable(items, i, number);
    assign(statement.names, items[i]);
    flow = run(statement.body);
    has_completed = has_completed || flow == Flow::normal;
  }
  scopes_.pop_back();
  changed_.pop_back();
  if (has_completed) return Flow::normal;
  enter_scope(statement.unset_otherwise);
  flow = run(statement.otherwise);
  scopes_.pop_back();
  return flow;
}

void Evaluator::set(const Statement& statement) {
  const Value value = statement.expression ? evaluate(*statement.expression) : body(statement);
  if (!statement.is_attribute) return assign(statement.names, value);
  const Value of = variable(statement.names[0]);
  require(of.is<std::shared_ptr<Namespace>>(), "only a namespace has attributes that can be set, and {} is {}",
          statement.names[0], of.kind());
  of.as<std::shared_ptr<Namespace>>()->map.set(Text(statement.names[1]), value);
}

Value Evaluator::body(const Statement& statement) {
  Text text = captured(statement);
  if (!statement.filter) return text;
  enter_scope({});
  innermost()[std::string(name_of_body)] = std::move(text);
  Value value = evaluate(*statement.filter);
  scopes_.pop_back();
  return value;
}

void Evaluator::call_block(const Statement& statement) {
  caller_of_[statement.expression.get()] = callable_of(statement);
  out_->append(text_of(evaluate(*statement.expression), budget_));
}

Evaluator::Flow Evaluator::with(const Statement& statement) {
  Values values;
  for (const ExpressionPointer& value : statement.defaults) values.push_back(evaluate(*value));
  enter_scope(statement.unset);
  for (std::size_t i = 0; i < values.size(); ++i) innermost()[statement.names[i]] = std::move(values[i]);
  const Flow flow = run(statement.body);
  scopes_.pop_back();
  return flow;
}

void Evaluator::assign(const std::vector<std::string>& names, const Value& value) {
  if (names.size() == 1) {
    innermost()[names[0]] = value;
    return;
  }
  const Values items = items_of(value, budget_);
  require(items.size() == names.size(), "{} values for {} names", items.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) innermost()[names[i]] = items[i];
}

void Evaluator::generation(const Statement& statement) {
  require(out_ == &result_.text, "{{% generation %}} inside a macro or a set is not supported");
  const std::size_t start = out_->bytes.size();
  enter_scope(statement.unset);
  run(statement.body);
  scopes_.pop_back();
  result_.generations.emplace_back(start, out_->bytes.size());
}

void Evaluator::enter_scope(const std::vector<std::string>& unset) {
  budget_.step(std::ssize(unset));
  scopes_.push_back(std::make_shared<Scope>());
  for (const std::string& name : unset) innermost()[name] = Undefined{name};
}

Text Evaluator::captured(const Statement& statement) {
  Text text;
  Text* outer = std::exchange(out_, &text);
  enter_scope(statement.unset);
  run(statement.body);
  scopes_.pop_back();
  out_ = outer;
  return text;
}

Value Evaluator::variable(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = (*scope)->find(name); found != (*scope)->end()) return found->second;
  return Undefined{name};
}

Value Evaluator::evaluate(const ExpressionNode& expression) {
  place_ = expression.place;
  budget_.step();
  require(++depth_ <= most_evaluations, "the template is nested more than {} deep", most_evaluations);
  Value value = kind_of(expression);
  --depth_;
  place_ = expression.place;
  return value;
}

}  // namespace echelon::jinja
