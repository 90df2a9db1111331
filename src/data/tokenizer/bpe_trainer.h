// Learns the merges of byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909, algorithm 1): repeatedly merge the
// most frequent pair of neighbours. Counts are updated word by word, so a merge costs the length of the words that
// contain it.
#pragma once

#include "data/tokenizer/splitter.h"
#include "data/tokenizer/tokenizer_spec.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace echelon {

/// Counts the words of the text and then learns from the counts. Of equally frequent pairs, the one with the smaller
/// (left id, right id) goes first, so the result depends only on the text.
class BpeTrainer : private PieceSink {
 public:
  BpeTrainer();

  /// Adds a document. <|endoftext|> in it separates documents and is never merged. Words are counted in parts of at
  /// most 256 bytes.
  void add(std::string_view text);

  /// A tokenizer of vocab_size tokens: the 256 bytes, the merges, and <|endoftext|> as the last. It has fewer if no
  /// pair of the text occurs twice. Throws Error if vocab_size is below 257 or above 2^24.
  [[nodiscard]] TokenizerSpec train(std::int64_t vocab_size) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view bytes) const;
  };
  void take(std::string_view word) override;
  void count(std::string_view word);

  Splitter splitter_;
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> word_counts_;
};

}  // namespace echelon
