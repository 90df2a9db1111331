// The first step of a tokenizer: what it makes of a text before it splits it.
#pragma once

#include "data/tokenizer/tokenizer_spec.h"
#include "data/tokenizer/unicode/character_map.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// Thread-safe.
class Normalizer {
 public:
  /// Throws Error if a regular expression is not supported, or a character map is damaged.
  explicit Normalizer(std::vector<NormalizerStep> steps);

  [[nodiscard]] bool is_identity() const { return steps_.empty(); }
  /// Returns `text` itself or a view into `storage`.
  [[nodiscard]] std::string_view apply(std::string_view text, std::string& storage) const;

 private:
  struct Step {
    NormalizerStep values;
    std::optional<TextPattern> pattern;  // of a replacement by a regular expression
    std::optional<CharacterMap> map;
  };
  std::vector<Step> steps_;
};

/// `text` with `content` instead of every match. Bytes that are not UTF-8 stay.
[[nodiscard]] std::string with_replacements(std::string_view text, const TextPattern& pattern,
                                            std::string_view content);

/// `text` with `content` for every `wanted`, which is not empty.
[[nodiscard]] std::string with_replacements(std::string_view text, std::string_view wanted, std::string_view content);

}  // namespace echelon
