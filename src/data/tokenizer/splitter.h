// Splits text into the pieces that a model works on. No merge crosses pieces.
#pragma once

#include "data/tokenizer/tokenizer_spec.h"

#include <optional>
#include <string_view>
#include <vector>

namespace echelon {

/// Takes the pieces of a text, in order.
class PieceSink {
 public:
  virtual ~PieceSink() = default;
  /// The piece may be in memory that lasts only for the call.
  virtual void take(std::string_view piece) = 0;
};

/// Steps applied in sequence: the first splits the text, the second each of its pieces, and so on. Each run of invalid
/// UTF-8 is a piece. Thread-safe.
class Splitter {
 public:
  /// Throws Error with the pattern and the reason if one does not compile. Without steps a text is one piece. With
  /// `as_regex`, no pattern is run by a Scanner.
  explicit Splitter(const std::vector<SplitStep>& steps, bool as_regex = false);

  /// `starts_text`: the text is the start of what is encoded, not a part after an added token. Throws Error if a
  /// pattern exceeds its match limits.
  void split(std::string_view text, bool starts_text, PieceSink& sink) const;

 private:
  struct Step {
    SplitStep values;
    std::optional<TextPattern> pattern;
  };
  struct Part {
    std::string_view text;
    bool starts_text;
  };
  void run(std::size_t level, Part part, PieceSink& sink) const;
  void run_pattern(std::size_t level, Part part, PieceSink& sink) const;
  void run_scanner(std::size_t level, Part part, PieceSink& sink) const;
  void run_byte_level(std::size_t level, Part part, PieceSink& sink) const;
  void run_metaspace(std::size_t level, Part part, PieceSink& sink) const;

  std::vector<Step> steps_;
};

}  // namespace echelon
