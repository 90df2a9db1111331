// Unicode's normalization form C (UAX 15): a letter and its accent become one character if Unicode has one.
#pragma once

#include <string>
#include <string_view>

namespace echelon {

/// `text` with every run of valid UTF-8 in form C; other bytes are unchanged. Returns `text` itself, or a view into
/// `storage` if anything could change.
[[nodiscard]] std::string_view to_nfc(std::string_view text, std::string& storage);

}  // namespace echelon
