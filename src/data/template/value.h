// Values of a chat template. Text remembers where each of its bytes came from, through every operation, so that what a
// user wrote never becomes a control token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace echelon::jinja {

/// UTF-8 with the origin of each byte: 0 is the template; other values are the caller's.
struct Text {
  std::string bytes;
  std::u32string origins;
  bool is_markup = false;  // what `escape` and `safe` make: escapes what is added to it; parts and appends lose it

  Text() = default;
  explicit Text(std::string_view text, char32_t origin = 0) : bytes(text), origins(text.size(), origin) {}
  void append(const Text& other) {
    bytes += other.bytes;
    origins += other.origins;
  }
  [[nodiscard]] Text part(std::size_t at, std::size_t size = std::string::npos) const {
    Text text;
    text.bytes = bytes.substr(at, size);
    text.origins = origins.substr(at, size);
    return text;
  }
};

/// What a name that has no value gives: prints nothing, is false and empty.
struct Undefined {
  std::string name;
};
struct None {};
class Value;
struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;
};
/// In the order of insertion, as in Python.
struct Map {
  std::vector<std::pair<Text, Value>> items;
  int depth = 1;
  int loop = 0;  // of a loop variable: counts loops from 1

  [[nodiscard]] const Value* find(std::string_view key) const;
  void set(const Text& key, Value value);
};
/// What `namespace(...)` makes: the one value that a template can change.
struct Namespace {
  Map map;
};
struct Statement;
struct Closure;  // evaluator.h
/// A function of the template or of the engine.
struct Callable {
  std::string name;
  const Statement* macro = nullptr;
  std::shared_ptr<const Closure> closure = {};  // of a macro or what a call block passes
};

class Value {
 public:
  using Kinds =
      std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
                   std::shared_ptr<const List>, std::shared_ptr<const Map>, std::shared_ptr<Namespace>, Callable>;
  Value() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a value is any of its kinds
  template <class T>
  Value(T kind) : kind_(std::move(kind)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Value(Text text) : kind_(std::make_shared<const Text>(std::move(text))) {}

  /// Throws Error if values are nested more than 64 deep or a namespace is inside.
  static Value list(std::vector<Value> items, bool is_tuple = false);
  static Value map(Map map);

  template <class T>
  [[nodiscard]] bool is() const {
    return std::holds_alternative<T>(kind_);
  }
  template <class T>
  [[nodiscard]] const T& as() const {
    return std::get<T>(kind_);
  }
  [[nodiscard]] const Text* text() const { return pointer<Text>(); }
  [[nodiscard]] const List* list() const { return pointer<List>(); }
  [[nodiscard]] const Map* map() const { return pointer<Map>(); }
  [[nodiscard]] bool is_true() const;
  [[nodiscard]] bool is_whole() const { return is<std::int64_t>() || is<bool>(); }
  [[nodiscard]] bool is_number() const { return is_whole() || is<double>(); }
  [[nodiscard]] std::int64_t whole() const;  // Error if it is none
  [[nodiscard]] double real() const { return is<double>() ? as<double>() : static_cast<double>(whole()); }
  /// "a string", for messages.
  [[nodiscard]] std::string_view kind() const;
  [[nodiscard]] int depth() const;

 private:
  template <class T>
  [[nodiscard]] const T* pointer() const {
    const auto* p = std::get_if<std::shared_ptr<const T>>(&kind_);
    return p ? p->get() : nullptr;
  }
  Kinds kind_;
};

[[nodiscard]] bool equal(const Value& a, const Value& b);
/// As Python's `str`; `quoted` is its `repr`.
[[nodiscard]] Text to_text(const Value& value, bool quoted = false);

}  // namespace echelon::jinja
