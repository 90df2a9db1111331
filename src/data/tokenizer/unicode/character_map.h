// SentencePiece's rules of what becomes of characters (precompiled_charsmap), such as nmt_nfkc: a trie of sequences,
// each with its replacement.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// Thread-safe.
class CharacterMap {
 public:
  /// `rules`: the trie's bytes as a little-endian uint32, the trie as a double array (Yata's Darts-clone), and the
  /// replacements, each ended by a zero. Throws Error, starting with `name`, if it is cut off, or if a replacement is
  /// longer than 256 bytes.
  CharacterMap(std::string_view rules, const std::string& name);

  /// At each place the longest sequence that has a rule becomes its replacement. All else stays, also bytes that are
  /// not UTF-8.
  [[nodiscard]] std::string apply(std::string_view text) const;
  /// Bytes; no character becomes more.
  [[nodiscard]] std::size_t longest_replacement() const { return longest_; }

 private:
  struct Match {
    std::size_t length = 0;  // bytes; 0: no rule
    std::uint32_t replacement = 0;
  };
  [[nodiscard]] Match longest_match(std::string_view text) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
  std::size_t longest_ = 0;
};

}  // namespace echelon
