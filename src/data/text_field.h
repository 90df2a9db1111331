// The text in a line of a .jsonl file.
#pragma once

#include <string>
#include <string_view>

namespace echelon {

/// The string of a JSON object under `key`, the last one if there are several. Nothing else of the line is kept: memory
/// is in proportion to this text. Throws Error if the line is not JSON, with the column, or no object with such a text.
[[nodiscard]] std::string read_text_field(std::string_view line, const std::string& key);

}  // namespace echelon
