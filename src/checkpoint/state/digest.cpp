#include "checkpoint/state/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>

namespace echelon {

Digest digest_of(const void* data, std::size_t num_bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, num_bytes);
  return {hash.high64, hash.low64};
}

std::string to_text(const Digest& digest) { return fmt::format("{:016x}{:016x}", digest.high, digest.low); }

std::optional<Digest> parse_digest(std::string_view text) {
  constexpr std::size_t half = digest_letters / 2;
  constexpr int hexadecimal = 16;
  if (text.size() != digest_letters) return {};
  const auto word = [&](std::size_t first, std::uint64_t& value) {
    const char* begin = text.data() + first;
    const auto [end, error] = std::from_chars(begin, begin + half, value, hexadecimal);
    return error == std::errc() && end == begin + half;
  };
  Digest digest;
  if (!word(0, digest.high) || !word(half, digest.low)) return {};
  return digest;
}

}  // namespace echelon
