// Tokens back to text, by the steps of the tokenizer's file.
#pragma once

#include "data/tokenizer/tokenizer_spec.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// Thread-safe. Where the library puts U+FFFD for bytes that are not UTF-8, the bytes are kept.
class TokenDecoder {
 public:
  /// Throws Error if a regular expression is not supported. Without steps the tokens are joined by spaces.
  explicit TokenDecoder(const std::vector<DecodeStep>& steps);

  /// Whether the text is the tokens' own texts joined.
  [[nodiscard]] bool is_local() const;
  [[nodiscard]] std::string decode(std::vector<std::string> tokens) const;
  /// What a token inside a text is decoded to.
  [[nodiscard]] std::string decode_one(const std::string& token) const;

 private:
  struct Step {
    DecodeStep values;
    std::optional<TextPattern> pattern;
  };
  static void apply(const Step& step, bool is_first, std::string& token);

  std::vector<Step> steps_;
};

}  // namespace echelon
