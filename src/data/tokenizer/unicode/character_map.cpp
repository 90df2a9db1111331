#include "data/tokenizer/unicode/character_map.h"

#include "base/error.h"
#include "base/text/utf8.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace echelon {
namespace {

// A unit of the double array: a value with the highest bit set, or a node with its label in the lowest byte.
constexpr std::uint32_t value_bits = 0x7fffffff, label_bits = 0x800000ff;

bool has_value(std::uint32_t unit) { return (unit >> 8 & 1U) != 0; }

std::uint32_t offset_of(std::uint32_t unit) { return unit >> 10U << ((unit & 1U << 9U) >> 6U); }

}  // namespace

CharacterMap::CharacterMap(std::string_view rules, const std::string& name) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::size_t unit = sizeof(std::uint32_t), most = 256;
  std::uint32_t num_bytes = 0;
  require(rules.size() >= unit, "{} has {} bytes, less than the size of a trie", name, rules.size());
  std::memcpy(&num_bytes, rules.data(), unit);
  rules.remove_prefix(unit);
  require(num_bytes >= unit && num_bytes % unit == 0 && num_bytes <= rules.size(),
          "{} says that its trie has {} bytes, which are not whole units of the {} that follow", name, num_bytes,
          rules.size());
  units_.resize(num_bytes / unit);
  std::memcpy(units_.data(), rules.data(), num_bytes);
  replacements_ = rules.substr(num_bytes);
  std::size_t first = 0;
  while (first < replacements_.size()) {
    const std::size_t end = replacements_.find('\0', first);
    require(end != std::string::npos, "{} is cut off: its last replacement has no end", name);
    require(end - first <= most, "{} has a replacement of {} bytes (at most {})", name, end - first, most);
    const std::string_view replacement = std::string_view(replacements_).substr(first, end - first);
    require(valid_utf8_prefix(replacement) == replacement.size(), "{} has a replacement that is not UTF-8", name);
    longest_ = std::max(longest_, replacement.size());
    first = end + 1;
  }
}

CharacterMap::Match CharacterMap::longest_match(std::string_view text) const {
  Match match;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || (units_[node] & label_bits) != byte) break;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_value(unit)) continue;
    if (node >= units_.size()) break;
    const std::uint32_t replacement = units_[node] & value_bits;
    if (replacement < replacements_.size()) match = {i + 1, replacement};
  }
  return match;
}

std::string CharacterMap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Match match = longest_match(text);
    if (match.length > 0) {
      out += replacements_.c_str() + match.replacement;
      text.remove_prefix(match.length);
    } else {
      const std::size_t length = std::max<std::size_t>(utf8_character_length(text), 1);
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace echelon
