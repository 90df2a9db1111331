// BPE on characters with random merges, and its ids by the naive loop.
#pragma once

#include "data/tokenizer/tokenizer_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

namespace echelon {

inline const std::vector<std::string> alphabet = {"a",      "b",      "c",          "\n", "\x7f",
                                                  "\u00e9", "\u2581", "\U0001f600", "x",  "\u4e2d"};
inline constexpr std::size_t num_known = 8;  // the last two of the alphabet are no tokens

inline std::int32_t id_of(TokenizerSpec& spec, const std::string& token) {
  const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), token);
  if (found == spec.tokens.end()) return spec.tokens.push_back(token), static_cast<int>(spec.tokens.size()) - 1;
  return static_cast<std::int32_t>(found - spec.tokens.begin());
}

// Merges of random tokens; some tokens come from several pairs, as SentencePiece's files have them.
inline TokenizerSpec random_spec(std::mt19937& random, bool has_bytes, bool joins_words = true) {
  TokenizerSpec spec;
  spec.model = TokenModel::bpe;
  spec.unknown = 0;
  spec.has_byte_fallback = has_bytes;
  spec.fuses_unknown = random() % 2 == 0;
  spec.tokens = {"<unk>"};
  for (int byte = 0; byte < 256 && has_bytes; ++byte) spec.tokens.push_back(fmt::format("<0x{:02X}>", byte));
  const std::size_t first = spec.tokens.size();
  spec.tokens.insert(spec.tokens.end(), alphabet.begin(), alphabet.begin() + num_known);
  for (std::size_t count = 10 + random() % 40; spec.merges.size() < count;) {
    const auto pick = [&] { return static_cast<std::int32_t>(first + random() % (spec.tokens.size() - first)); };
    const std::int32_t left = pick(), right = pick();
    const auto starts_word = [&](std::int32_t id) { return spec.tokens[id].starts_with("\u2581"); };
    if (!joins_words && starts_word(right) && !spec.tokens[left].ends_with("\u2581")) continue;
    const auto is_same = [&](const Merge& merge) { return merge.left == left && merge.right == right; };
    if (std::none_of(spec.merges.begin(), spec.merges.end(), is_same))
      spec.merges.push_back({left, right, id_of(spec, spec.tokens[left] + spec.tokens[right])});
  }
  // A token may come before those that it is made of.
  if (random() % 4 == 0) std::shuffle(spec.merges.begin(), spec.merges.end(), random);
  return spec;
}

// The first of the pairs with the least rank is merged, until none is left.
inline std::vector<std::int32_t> naive_ids(TokenizerSpec spec, const std::vector<std::string>& characters) {
  std::vector<std::int32_t> ids;
  bool was_unknown = false;
  for (const std::string& character : characters) {
    const bool is_unknown = std::find(spec.tokens.begin(), spec.tokens.end(), character) == spec.tokens.end();
    if (!is_unknown) {
      ids.push_back(id_of(spec, character));
    } else if (spec.has_byte_fallback) {
      for (const char byte : character) ids.push_back(1 + static_cast<std::uint8_t>(byte));
    } else if (!was_unknown || !spec.fuses_unknown) {
      ids.push_back(0);
    }
    was_unknown = is_unknown;
  }
  for (std::size_t rank = 0; rank < spec.merges.size();) {
    const Merge& merge = spec.merges[rank];
    const std::array wanted = {merge.left, merge.right};
    const auto pair = std::search(ids.begin(), ids.end(), wanted.begin(), wanted.end());
    ++rank;
    if (pair == ids.end()) continue;
    *pair = merge.result;
    ids.erase(pair + 1);
    rank = 0;
  }
  return ids;
}

}  // namespace echelon
