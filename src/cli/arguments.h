// What CLI11 leaves to chance: which argument is the value of which option, and whether a number is one.
#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming)
class App;
class Validator;
}  // namespace CLI

namespace echelon {

/// `--option=value` as two arguments, for the options of `verb` that take a value, so that "--output=" has an empty one
/// instead of the argument behind it. Throws Error where a value is missing ("--output --json") or is not the number
/// that the option wants.
[[nodiscard]] std::vector<std::string> with_values_apart(const CLI::App& verb,
                                                         const std::vector<std::string>& arguments);

/// Of a number from `least` to `most`; a value outside is refused with the bound.
[[nodiscard]] CLI::Validator in_range(double least, double most);

}  // namespace echelon
