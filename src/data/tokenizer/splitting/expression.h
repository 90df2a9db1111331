// The regular expressions that a Scanner runs: alternatives of repeated classes, as the published patterns are.
#pragma once

#include "data/tokenizer/unicode/code_points.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace echelon {

/// A part of an alternative. Of `times` a text is as many as there are; fewer are tried unless is_possessive.
struct Term {
  enum class Kind : std::uint8_t {
    repeat,      // a character of the class, min to max times
    group,       // one of `alternatives`; with min = 0, or none
    not_before,  // (?!class): the next character, if there is one, is not of the class
    at_end,      // $, where a line or the text ends
  };
  Kind kind = Kind::repeat;
  std::uint32_t members = 0;  // the class: a bit of Expression::classes
  std::uint32_t min = 1, max = 1;
  bool is_possessive = false;
  std::vector<std::vector<Term>> alternatives;
};

struct Expression {
  std::vector<CodePointSet> classes;            // at most 32
  std::vector<std::vector<Term>> alternatives;  // the first that matches counts
};

/// None if the pattern has anything else: then a Regex runs it.
[[nodiscard]] std::optional<Expression> parse_expression(std::string_view pattern);

}  // namespace echelon
