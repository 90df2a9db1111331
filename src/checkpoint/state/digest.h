// Digests of bytes: XXH3 with 128 bits. They find accidents, not forgers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace echelon {

struct Digest {
  std::uint64_t high = 0, low = 0;
  bool operator==(const Digest&) const = default;
};

[[nodiscard]] Digest digest_of(const void* data, std::size_t num_bytes);
[[nodiscard]] inline Digest digest_of(std::string_view text) { return digest_of(text.data(), text.size()); }

inline constexpr std::size_t digest_letters = 32;
[[nodiscard]] std::string to_text(const Digest& digest);  // 32 hexadecimal digits
/// None if it is anything else.
[[nodiscard]] std::optional<Digest> parse_digest(std::string_view text);

}  // namespace echelon
