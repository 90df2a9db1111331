#include "data/tokenizer/models/token_search.h"

#include <array>
#include <string>

namespace echelon {

TokenSearch::TokenSearch(const TokenizerSpec& spec, const MergeTable& merges, std::span<const std::int32_t> symbols) {
  make_tokens(spec, merges, symbols);
  std::vector<TokenTrie::Entry> entries;
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    const std::string& bytes = spec.tokens[id];
    tokens_[id].length = static_cast<std::uint32_t>(bytes.size());
    if (tokens_[id].rank != unmade && !bytes.empty()) entries.emplace_back(bytes, static_cast<std::int32_t>(id));
  }
  trie_ = TokenTrie(entries);
  for (const auto& [bytes, id] : entries)
    tokens_[static_cast<std::size_t>(id)].shorter = trie_.longest(bytes.substr(0, bytes.size() - 1));
}

/// In the order of the merges: a token is made of two that are made by earlier merges, if nothing else joins these.
void TokenSearch::make_tokens(const TokenizerSpec& spec, const MergeTable& merges,
                              std::span<const std::int32_t> symbols) {
  tokens_.resize(spec.tokens.size());
  for (const std::int32_t id : symbols) tokens_[static_cast<std::size_t>(id)].rank = symbol;
  const auto bytes = [&](std::int32_t id) -> const std::string& { return spec.tokens[static_cast<std::size_t>(id)]; };
  for (std::size_t i = 0; i < spec.merges.size(); ++i) {
    const auto [left, right, result] = spec.merges[i];
    const auto rank = static_cast<std::int32_t>(i);
    Token& made = tokens_[static_cast<std::size_t>(result)];
    const bool is_new = made.rank == unmade && token(left).rank != unmade && token(right).rank != unmade;
    if (!is_new || merges.find(left, right).rank != rank || bytes(left) + bytes(right) != bytes(result)) continue;
    if (!are_parts_apart(merges, left, right)) continue;
    made.left = left;
    made.right = right;
    made.rank = rank;
  }
}

// Goes back in time from the two tokens: the later of their last merges is undone, and each pair at the seam must not
// merge before its tokens do otherwise. Of equal ranks the merge on the left is earlier.
bool TokenSearch::are_parts_apart(const MergeTable& merges, std::int32_t left, std::int32_t right) const {
  std::int32_t left_until = PairMerge().rank, right_until = PairMerge().rank;
  while (token(left).rank != symbol || token(right).rank != symbol) {
    if (token(left).rank > token(right).rank) {
      left_until = token(left).rank;
      left = token(left).right;
    } else {
      right_until = token(right).rank;
      right = token(right).left;
    }
    const std::int32_t rank = merges.find(left, right).rank;
    if (rank < left_until && rank <= right_until) return false;
  }
  return true;
}

// Longest tokens first. A place from which the rest of the piece has no tokens is visited once.
bool TokenSearch::append(std::string_view piece, const MergeTable& merges, std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, longest_piece> found;
  std::size_t count = 0, at = 0;
  std::uint64_t is_dead = 0;
  std::int32_t next = trie_.longest(piece);
  while (at < piece.size()) {
    const auto fits = [&] {
      return (is_dead >> (at + token(next).length) & 1) == 0 &&
             (count == 0 || are_apart(merges, found[count - 1], next));
    };
    while (next >= 0 && !fits()) next = token(next).shorter;
    if (next >= 0) {
      found[count++] = next;
      at += token(next).length;
      next = trie_.longest(piece.substr(at));
    } else {
      if (count == 0) return false;
      is_dead |= std::uint64_t{1} << at;
      next = found[--count];
      at -= token(next).length;
    }
  }
  ids.insert(ids.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count));
  return true;
}

}  // namespace echelon
