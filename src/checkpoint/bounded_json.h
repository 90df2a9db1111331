// JSON of files that may come from anyone: parsed in memory in proportion to the text.
#pragma once

#include <nlohmann/json.hpp>

#include <string_view>

namespace echelon {

/// The value is discarded if the text is not JSON. Throws Error if it is nested deeper than any file that we read, or
/// if it has more lists and objects than a text of that length needs. An empty list has two letters, but takes up to
/// fifty times as much memory.
[[nodiscard]] nlohmann::json parse_bounded_json(std::string_view text);

}  // namespace echelon
