// The words of a text as linked symbols, in which the most frequent pair of neighbours is merged again and again.
#pragma once

#include "data/tokenizer/learning/symbol_pair_counts.h"

#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

/// A merge costs the places of its pair, not the length of their words. Counts and order are those of Hugging Face's
/// library: of equally frequent pairs the smaller one goes first. A pair that was merged keeps its count: where later
/// merges make it again, it is merged next, as an encoder would do it.
class PairMerger {
 public:
  void add_word(std::span<const std::int32_t> symbols, std::int64_t count);
  /// After the last word.
  void start();

  struct Candidate {
    std::int64_t count = 0;
    SymbolPair pair;
    std::vector<std::uint32_t> places;  // of left symbols, ascending; some may be stale
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  /// The most frequent pair; count 0 if none is left.
  [[nodiscard]] Candidate pop_best();
  /// Puts `result` where the pair is.
  void merge(const Candidate& candidate, std::int32_t result);

 private:
  struct Symbol {
    std::int32_t id;  // gone: merged into the one before it
    std::uint32_t previous, next, word;
  };
  static constexpr std::int32_t gone = -1;
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  void push(Candidate candidate);
  void count_new(std::uint32_t place, SymbolPair pair, std::int64_t count);
  void merge_at(std::uint32_t place, SymbolPair pair, std::int32_t result);
  void push_lists();

  std::vector<Symbol> symbols_;
  std::vector<std::int64_t> word_counts_;
  SymbolPairCounts uses_;
  std::vector<Candidate> lists_;  // pairs that the current merge made
  std::vector<Candidate> heap_;
};

}  // namespace echelon
