#include "data/template/lexer.h"

#include "base/error.h"

#include <algorithm>
#include <array>

namespace echelon::jinja {
namespace {

constexpr std::string_view blanks = " \t\n\r\f\v";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
      source_ += source[i] == '\r' ? '\n' : source[i];
    }
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) text();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] Place place() {
    for (; placed_ < at_; ++placed_) {
      place_.column = source_[placed_] == '\n' ? 1 : place_.column + 1;
      place_.line += source_[placed_] == '\n' ? 1 : 0;
    }
    return place_;
  }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), place()}); }
  [[nodiscard]] bool starts(std::string_view sign) const { return source_.compare(at_, sign.size(), sign) == 0; }

  /// Text up to the next tag, then the tag.
  void text() {
    std::size_t open = at_;
    do open = source_.find('{', open);
    while (open != std::string::npos && open + 1 < source_.size() &&
           std::string_view("{%#").find(source_[open + 1]) == std::string_view::npos && ++open);
    if (open == std::string::npos || open + 1 >= source_.size()) open = source_.size();
    std::string before = source_.substr(at_, open - at_);
    const char kind = open < source_.size() ? source_[open + 1] : '\0';
    const char mark = open + 2 < source_.size() ? source_[open + 2] : '\0';
    if (kind != '\0' && mark == '-') {
      before.erase(before.find_last_not_of(blanks) + 1);
    } else if ((kind == '%' || kind == '#') && mark != '+') {
      strip_line_start(before);
    }
    if (!before.empty()) add(TokenKind::text, before);
    at_ = open;
    if (kind == '#') return comment();
    if (kind != '\0') tag(kind == '%', mark == '-' || (mark == '+' && kind == '%'));
  }

  void strip_line_start(std::string& before) const {
    const std::size_t newline = before.rfind('\n');
    if (newline == std::string::npos && !starts_line_) return;
    const std::size_t line = newline == std::string::npos ? 0 : newline + 1;
    if (before.find_first_not_of(blanks, line) == std::string::npos) before.erase(line);
  }

  void after_tag(bool strips, bool trims) {
    const std::size_t from = at_;
    if (strips) {
      at_ = std::min(source_.find_first_not_of(blanks, at_), source_.size());
    } else if (trims && starts("\n")) {
      ++at_;
    }
    starts_line_ = at_ > from && source_[at_ - 1] == '\n';
  }

  void comment() {
    const std::size_t close = source_.find("#}", at_ + 2);
    if (close == std::string::npos) refuse(place(), "the comment has no end");
    const char mark = source_[close - 1];
    at_ = close + 2;
    after_tag(mark == '-', mark != '+');
  }

  void tag(bool is_block, bool has_mark) {
    add(is_block ? TokenKind::open_block : TokenKind::open_output, "");
    const Place opened = place();
    at_ += has_mark ? 3 : 2;
    const std::string_view close = is_block ? "%}" : "}}";
    for (int depth = 0;;) {
      at_ = source_.find_first_not_of(blanks, at_);
      if (at_ == std::string::npos) refuse(opened, "the tag has no end");
      const bool strips = source_[at_] == '-', keeps = is_block && source_[at_] == '+';
      if (depth == 0 && source_.compare(at_ + ((strips || keeps) ? 1 : 0), 2, close) == 0) {
        const bool is_raw = is_block && tokens_.back().kind == TokenKind::name && tokens_.back().text == "raw" &&
                            tokens_[tokens_.size() - 2].kind == TokenKind::open_block;
        if (is_raw) return raw(at_ + ((strips || keeps) ? 3 : 2), strips, opened);
        add(is_block ? TokenKind::close_block : TokenKind::close_output, "");
        at_ += (strips || keeps) ? 3 : 2;
        return after_tag(strips, is_block && !keeps);
      }
      if (std::string_view("([{").find(source_[at_]) != std::string_view::npos) ++depth;
      if (std::string_view(")]}").find(source_[at_]) != std::string_view::npos) --depth;
      expression_token();
    }
  }

  /// Up to {% endraw %}, whose marks count as those of any tag.
  void raw(std::size_t from, bool strips, Place opened) {
    tokens_.resize(tokens_.size() - 2);
    at_ = from;
    after_tag(strips, false);  // trim_blocks does not apply to this tag
    for (std::size_t open = at_; (open = source_.find("{%", open)) != std::string::npos; open += 2) {
      const char mark = open + 2 < source_.size() ? source_[open + 2] : '\0';
      const std::size_t name = source_.find_first_not_of(blanks, open + (mark == '-' || mark == '+' ? 3 : 2));
      if (name == std::string::npos || source_.compare(name, 6, "endraw") != 0) continue;
      const std::size_t end = source_.find_first_not_of(blanks, name + 6);
      const char last = end < source_.size() ? source_[end] : '\0';
      const bool has_mark = last == '-' || last == '+';
      if (end == std::string::npos || source_.compare(end + (has_mark ? 1 : 0), 2, "%}") != 0) continue;
      std::string before = source_.substr(at_, open - at_);
      if (mark == '-') before.erase(before.find_last_not_of(blanks) + 1);
      if (mark != '-' && mark != '+') strip_line_start(before);
      if (!before.empty()) add(TokenKind::text, before);
      at_ = end + (has_mark ? 3 : 2);
      return after_tag(last == '-', last != '+');
    }
    refuse(opened, "{% raw %} has no {% endraw %}");
  }

  void expression_token() {
    const char c = source_[at_];
    if (is_letter(c)) return span(TokenKind::name, [](char d) { return is_letter(d) || is_digit(d); });
    if (is_digit(c)) return number();
    if (c == '"' || c == '\'') return string(c);
    static constexpr std::array<std::string_view, 6> pairs = {"==", "!=", "<=", ">=", "//", "**"};
    for (const std::string_view pair : pairs)
      if (starts(pair)) return sign(2);
    if (std::string_view("+-*/%~<>=()[]{}.,:|").find(c) == std::string_view::npos)
      refuse(place(), fmt::format("unexpected character '{}'", c));
    sign(1);
  }

  void sign(std::size_t size) {
    add(TokenKind::sign, source_.substr(at_, size));
    at_ += size;
  }

  template <class Holds>
  void span(TokenKind kind, Holds holds) {
    std::size_t end = at_;
    while (end < source_.size() && holds(source_[end])) ++end;
    add(kind, source_.substr(at_, end - at_));
    at_ = end;
  }

  void number() {
    bool is_real = false;
    const std::size_t end = end_of_number(source_, at_, is_real);
    add(is_real ? TokenKind::real : TokenKind::whole, source_.substr(at_, end - at_));
    at_ = end;
  }

  void string(char quote) {
    std::string text;
    const Place opened = place();
    std::size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i += append_escape(std::string_view(source_).substr(i + 1), text, opened) + 1;
      } else {
        text += source_[i++];
      }
    }
    if (i >= source_.size()) refuse(opened, "the string has no end");
    add(TokenKind::string, text);
    at_ = i + 1;
  }

  std::string source_;
  std::size_t at_ = 0, placed_ = 0;
  Place place_;
  bool starts_line_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

void refuse(Place place, std::string_view why) {
  throw Error(fmt::format("chat template, line {}, column {}: {}", place.line, place.column, why));
}

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace echelon::jinja
