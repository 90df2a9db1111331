// The character classes of regular expressions in tokenizer files, which are Oniguruma's, as sets of code points.
#pragma once

#include "data/tokenizer/unicode/code_points.h"

#include <cstddef>
#include <optional>
#include <string_view>

namespace echelon {

/// The class that starts at pattern[at]: [...], an escape such as \s, \p{L} or \n, or a literal character; `at` moves
/// after it. None, with `at` unchanged, if there is something else or a form that is not supported.
[[nodiscard]] std::optional<CodePointSet> read_class(std::string_view pattern, std::size_t& at);

/// Every character of `set` in each case, as (?i:) means it; none if that needs more than ASCII's letters.
[[nodiscard]] std::optional<CodePointSet> without_case(const CodePointSet& set);

}  // namespace echelon
