// A file that a user names, as text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace echelon {

/// The bytes of a file or of a pipe. None if it is a folder, cannot be read, or is longer than `most_bytes`
/// (/dev/zero).
[[nodiscard]] std::optional<std::string> read_text_file(const std::string& path, std::size_t most_bytes = 256U << 20U);

}  // namespace echelon
