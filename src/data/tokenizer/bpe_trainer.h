// Learns the merges of byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909, algorithm 1): repeatedly merge the
// most frequent pair of neighbours.
#pragma once

#include "data/tokenizer/learning/word_counts.h"
#include "data/tokenizer/splitter.h"
#include "data/tokenizer/tokenizer_spec.h"

#include <cstdint>
#include <string_view>

namespace echelon {

/// Counts the words of the text and then learns from the counts. Of equally frequent pairs, the one with the smaller
/// (left id, right id) goes first, so the result depends only on the text. Merges are those of Hugging Face's library.
class BpeTrainer : private PieceSink {
 public:
  BpeTrainer();

  /// Adds a document. <|endoftext|> in it separates documents and is never merged.
  void add(std::string_view text);

  /// A tokenizer of vocab_size tokens: the 256 bytes, the merges, and <|endoftext|> as the last. It has fewer if no
  /// pair of the text occurs min_frequency times. Throws Error if vocab_size is below 257 or above 2^24, or
  /// min_frequency below 1.
  [[nodiscard]] TokenizerSpec train(std::int64_t vocab_size, std::int64_t min_frequency = 2) const;

 private:
  void take(std::string_view word) override { words_.add(word); }

  Splitter splitter_;
  WordCounts words_;
};

}  // namespace echelon
