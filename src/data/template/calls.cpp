// Calls of macros, methods and global functions.
#include "data/template/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

namespace echelon::jinja {
namespace {

std::string time_text(const std::string& format) {
  std::array<char, 256> text{};
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  require(format.size() <= 64, "a format of strftime_now has more than 64 bytes");
  return {text.data(), std::strftime(text.data(), text.size(), format.c_str(), &local)};
}

}  // namespace

Value Evaluator::call(const ExpressionNode& expression) {
  const ExpressionNode& of = *expression.parts[0];
  if (of.kind == ExpressionKind::attribute) {
    require(expression.named.empty(), "arguments with names are not supported in {}", of.text);
    Values values{evaluate(*of.parts[0])};
    if (values[0].map() && values[0].map()->loop > 0) return call_loop(*values[0].map(), expression);
    for (Value& value : arguments(expression, 1)) values.push_back(std::move(value));
    return method(of.text, values, budget_);
  }
  const Value function = evaluate(of);
  require(!function.is<Undefined>(), "'{}' is undefined", of.text);
  require(function.is<Callable>(), "{} is not a function", function.kind());
  const Callable& callable = function.as<Callable>();
  return callable.macro ? call_macro(callable, expression) : call_global(callable.name, expression);
}

Value Evaluator::call_loop(const Map& loop, const ExpressionNode& call) {
  const std::string& name = call.parts[0]->text;
  Values values = arguments(call, 1);
  require(name == "cycle" || name == "changed", "loop has no method {}", name);
  if (name == "cycle") {
    require(!values.empty(), "loop.cycle needs values");
    return values[static_cast<std::size_t>(loop.find("index0")->whole()) % values.size()];
  }
  require(static_cast<std::size_t>(loop.loop) <= changed_.size(), "loop.changed is called after its loop");
  Values& last = changed_[static_cast<std::size_t>(loop.loop) - 1];
  const Value now = Value::list(values, true);
  if (!last.empty() && equal_in(last[0], now, budget_)) return false;
  last = {now};
  return true;
}

Value Evaluator::call_macro(const Callable& callable, const ExpressionNode& call) {
  const Statement& macro = *callable.macro;
  const std::size_t num_values = call.parts.size() - 1;
  require(num_values <= macro.defaults.size(), "{} takes at most {} arguments", macro.names[0], macro.defaults.size());
  Scope given;
  for (std::size_t i = 0; i < num_values; ++i) given[macro.names[i + 1]] = evaluate(*call.parts[i + 1]);
  for (const auto& [name, value] : call.named) {
    const bool is_known = std::find(macro.names.begin() + 1, macro.names.end(), name) != macro.names.end();
    require(is_known && !given.contains(name), "{} has no argument {}", macro.names[0], name);
    given[name] = evaluate(*value);
  }
  if (const auto caller = caller_of_.find(&call); caller != caller_of_.end()) {
    given["caller"] = caller->second;
    caller_of_.erase(caller);
  }
  Scopes outer = scopes_of(callable);
  std::swap(scopes_, outer);
  scopes_.push_back(std::make_shared<Scope>(std::move(given)));
  // Defaults see the parameters before them.
  for (std::size_t i = 0; i < macro.defaults.size(); ++i) {
    const std::string& name = macro.names[i + 1];
    if (innermost().contains(name)) continue;
    const Value value = macro.defaults[i] ? evaluate(*macro.defaults[i]) : Value(Undefined{name});
    innermost()[name] = value;
  }
  require((depth_ += 20) <= 1000, "macros call each other too deep");
  Value result = captured(macro);
  depth_ -= 20;
  scopes_ = std::move(outer);
  return result;
}

Callable Evaluator::callable_of(const Statement& statement) {
  budget_.step(std::ssize(scopes_));
  auto closure = std::make_shared<Closure>(Closure{{scopes_.begin(), scopes_.end()}});
  return {.name = statement.names[0], .macro = &statement, .closure = std::move(closure)};
}

Scopes Evaluator::scopes_of(const Callable& callable) {
  Scopes scopes;
  for (const std::weak_ptr<Scope>& scope : callable.closure->scopes) {
    budget_.step();
    scopes.push_back(scope.lock());
    require(scopes.back() != nullptr, "calling {} after the block that defines it is not supported", callable.name);
  }
  return scopes;
}

Value Evaluator::call_global(const std::string& name, const ExpressionNode& call) {
  if (name == "namespace" || name == "dict") {
    Map made;
    require(call.parts.size() <= 2, "{} takes one mapping and arguments with names", name);
    const Value first = call.parts.size() == 2 ? evaluate(*call.parts[1]) : Value();
    if (first.map()) made = *first.map();
    for (const auto& [key, value] : call.named) made.set(Text(key), evaluate(*value));
    return name == "dict" ? Value::map(std::move(made))
                          : Value(std::make_shared<Namespace>(Namespace{std::move(made)}));
  }
  require(call.named.empty(), "{} takes no arguments with names", name);
  const Values values = arguments(call, 1);
  if (name == "raise_exception")
    throw Error(fmt::format("the template refuses: {}", values.empty() ? "" : text_of(values[0], budget_).bytes));
  if (name == "strftime_now") {
    require(values.size() == 1 && values[0].text(), "strftime_now takes a string");
    return Text(time_text(values[0].text()->bytes));
  }
  require(!values.empty() && values.size() <= 3 &&
              std::ranges::all_of(values, [](const Value& value) { return value.is_whole(); }),
          "range takes one to three integers");
  const std::int64_t by = values.size() > 2 ? values[2].whole() : 1;
  require(by != 0, "the step of range is 0");
  const std::int64_t start = values.size() > 1 ? values[0].whole() : 0,
                     stop = values[values.size() > 1 ? 1 : 0].whole();
  Values items;
  for (std::int64_t i = start; by > 0 ? i < stop : i > stop;) {
    budget_.step();
    items.emplace_back(i);
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  return Value::list(std::move(items));
}

}  // namespace echelon::jinja
