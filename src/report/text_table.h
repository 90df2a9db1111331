// Columns of text, aligned: the first to the left, the others to the right.
#pragma once

#include <string>
#include <vector>

namespace echelon {

/// Two blanks between columns, each line with its end. Rows may differ in length.
[[nodiscard]] std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace echelon
