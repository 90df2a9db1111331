// JSON of files that may come from anyone: parsed in memory in proportion to the text, with the place of a fault.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace echelon {

struct JsonBounds {
  std::size_t most_depth = 32;                                      // of nesting, above that of any file that we read
  std::size_t most_keys = std::numeric_limits<std::size_t>::max();  // of an object
};

/// Throws Error, "not valid JSON at line 3, column 9: ...", if the text is not JSON in UTF-8. Throws Error too if it is
/// not within the bounds, or has more lists and objects than a text of that length needs: an empty list has two
/// letters, but takes up to fifty times as much memory. Keeps nothing of the text, in time in proportion to it.
void require_bounded_json(std::string_view text, const JsonBounds& bounds);

/// The values of a text that is within the usual bounds; throws Error if it is not.
[[nodiscard]] nlohmann::json parse_bounded_json(std::string_view text);

/// The same of a file that holds an object. Errors start with its name.
[[nodiscard]] nlohmann::json parse_json_object(std::string_view text, const std::string& name);

/// Where a text is not JSON in UTF-8, why, and what would be valid: "not valid JSON at line 3, column 9, after
/// '{"a": 1,': unexpected '}'; expected string literal". Columns are characters. A text without line breaks has no
/// "line 1": it may be a line of a file. Empty if the text is JSON.
[[nodiscard]] std::string json_fault(std::string_view text);

}  // namespace echelon
