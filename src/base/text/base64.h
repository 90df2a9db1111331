// Bytes as text of 64 letters (RFC 4648).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace echelon {

[[nodiscard]] std::string to_base64(std::string_view bytes);

/// None if it is not base64.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

}  // namespace echelon
