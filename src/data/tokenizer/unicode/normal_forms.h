// Unicode's normal forms (UAX 15) and lower case, as `tokenizers` computes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace echelon {

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

/// `text` with every run of valid UTF-8 in the form; other bytes are unchanged. Returns `text` itself, or a view into
/// `storage` if anything could change.
[[nodiscard]] std::string_view to_normal_form(std::string_view text, NormalForm form, std::string& storage);

/// Every character in lower case, alone: a final sigma becomes a plain one. Other bytes are unchanged.
[[nodiscard]] std::string to_lower_case(std::string_view text);

}  // namespace echelon
