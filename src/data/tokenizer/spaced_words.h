// Words of raw text that SentencePiece's kinds of BPE encode one by one.
#pragma once

#include "data/tokenizer/tokenizer_spec.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace echelon {

/// SentencePiece's files put a mark for each space, and make one piece of a whole text. Where no merge joins a mark to
/// another character before it, a text may be split before its spaces, and its words are remembered as they are in the
/// text: none has to be normalized again. Thread-safe.
class SpacedWords {
 public:
  /// Nothing if the tokenizer does more to a text than to put marks for spaces and a prefix before it, or if a merge
  /// joins words. Its model must allow SafeCuts.
  [[nodiscard]] static std::optional<SpacedWords> of(const TokenizerSpec& spec);

  /// Calls `take` with the start and the end of each word, in order. All but the first start with spaces.
  template <class Take>
  void for_each(std::string_view text, const Take& take) const {
    std::size_t begin = 0;
    std::uint64_t was_space = 1;
    for (std::size_t block = 0; block < text.size(); block += block_size) {
      const std::uint64_t spaces = spaces_of(text.substr(block, block_size));
      const std::uint64_t no_starts = joins_marks_ ? spaces << 1 | was_space : 0;
      for (std::uint64_t starts = spaces & ~no_starts; starts != 0; starts &= starts - 1) {
        const std::size_t at = block + static_cast<std::size_t>(std::countr_zero(starts));
        if (at == 0 || (joins_marks_ && text.substr(0, at).ends_with(space_mark))) continue;
        take(begin, at);
        begin = at;
      }
      was_space = spaces >> (block_size - 1);
    }
    if (begin < text.size()) take(begin, text.size());
  }

  /// `out` becomes the word with marks.
  void put_marks(std::string_view word, std::string& out) const;

 private:
  static constexpr std::size_t block_size = 64;
  explicit SpacedWords(bool joins_marks) : joins_marks_(joins_marks) {}
  /// A bit for each byte of a block.
  static std::uint64_t spaces_of(std::string_view block);

  bool joins_marks_;  // merges do: spaces side by side are of one word
};

}  // namespace echelon
