// Splits text into the pieces that byte-pair encoding works on. No merge crosses pieces.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// GPT-2's pattern (Radford et al. 2019): contractions, then runs of letters, digits or other marks with the space
/// before them, then white space without the last space if a word follows.
inline constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Regular expressions applied in sequence: the first splits the text, the second each of its pieces, and so on.
/// Matches are pieces, and so is the text between them. \s means Unicode's White_Space. Each run of invalid UTF-8 is a
/// piece. Thread-safe.
class Splitter {
 public:
  /// Throws Error with the pattern and the reason if one does not compile. Without patterns a text is one piece.
  explicit Splitter(const std::vector<std::string>& patterns);
  ~Splitter();
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;

  /// Calls `visit` with every piece in order; joined, they are `text`. Throws Error if a pattern exceeds its match
  /// limits.
  void split(std::string_view text, const std::function<void(std::string_view piece)>& visit) const;

 private:
  class Regex;
  void split(std::string_view text, std::size_t level, const std::function<void(std::string_view piece)>& visit) const;

  std::vector<Regex> regexes_;
};

}  // namespace echelon
