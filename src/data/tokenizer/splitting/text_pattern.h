// What a step of a tokenizer looks for in a text, and how a Split step splits around it.
#pragma once

#include "data/tokenizer/splitting/regex.h"
#include "data/tokenizer/splitting/scanner.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace echelon {

struct TextSpan {
  std::size_t begin, end;
  bool is_match;
};

/// Hugging Face's SplitDelimiterBehavior.
enum class SplitBehavior : std::uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };

class TextPattern {
 public:
  [[nodiscard]] static TextPattern of_text(std::string text);
  [[nodiscard]] static TextPattern of_class(CodePointSet characters);  // each character is a match
  /// Throws Error if the expression is not supported. With `as_regex`, a Regex runs it even if a Scanner could.
  [[nodiscard]] static TextPattern of_expression(const std::string& expression, bool as_regex = false);

  /// Appends spans that cover valid UTF-8 in order. Matches may be empty.
  void find(std::string_view text, std::vector<TextSpan>& spans) const;
  /// The Scanner that runs it, if one does.
  [[nodiscard]] const Scanner* scanner() const { return std::get_if<Scanner>(&pattern_); }

 private:
  using Kinds = std::variant<std::string, CodePointSet, Scanner, Regex>;
  explicit TextPattern(Kinds pattern) : pattern_(std::move(pattern)) {}
  Kinds pattern_;
};

/// The pieces of a text, some of them empty, from the spans of it: in place.
void apply(SplitBehavior behavior, std::vector<TextSpan>& spans);

}  // namespace echelon
