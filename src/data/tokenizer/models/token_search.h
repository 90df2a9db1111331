// BPE by a search for tokens instead of merge by merge. Two adjacent tokens are apart if no merge joins a part of the
// first to a part of the second before each is whole. Where all neighbours are apart, the merges of the whole text are
// those of each token alone, since the first merge across a seam would be one between parts of its two tokens. So such
// a sequence is what BPE gives, and there is only one.
#pragma once

#include "data/tokenizer/models/merge_table.h"
#include "data/tokenizer/models/token_trie.h"
#include "data/tokenizer/tokenizer_spec.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace echelon {

/// Thread-safe.
class TokenSearch {
 public:
  static constexpr std::size_t longest_piece = 63;

  TokenSearch() = default;
  /// `symbols`: what the merges start from, one for each byte or character.
  TokenSearch(const TokenizerSpec& spec, const MergeTable& merges, std::span<const std::int32_t> symbols);

  /// Appends the ids of a piece of at most longest_piece bytes, or nothing and returns false: then a symbol is missing,
  /// or the merges make a token in another way than alone.
  bool append(std::string_view piece, const MergeTable& merges, std::vector<std::int32_t>& ids) const;

 private:
  // How the merges make the token of its bytes alone.
  struct Token {
    std::int32_t left = -1, right = -1;  // none: a symbol
    std::int32_t rank = unmade;
    std::int32_t shorter = -1;  // the longest token that starts it
    std::uint32_t length = 0;
  };
  static constexpr std::int32_t symbol = -1, unmade = -2;  // instead of a rank

  void make_tokens(const TokenizerSpec& spec, const MergeTable& merges, std::span<const std::int32_t> symbols);
  [[nodiscard]] bool are_apart(const MergeTable& merges, std::int32_t left, std::int32_t right) const {
    return !merges.find(left, right).exists() && are_parts_apart(merges, left, right);
  }
  [[nodiscard]] bool are_parts_apart(const MergeTable& merges, std::int32_t left, std::int32_t right) const;
  [[nodiscard]] const Token& token(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }

  std::vector<Token> tokens_;
  TokenTrie trie_;
};

}  // namespace echelon
