// What the functions of src/context are compared with: every pair (query, key) by itself.
#pragma once

#include "context/key_ranges.h"
#include "context/token_lists.h"

#include <algorithm>
#include <random>
#include <vector>

namespace echelon {

/// The start of a token's document is the last offset that is not after it.
inline std::int32_t start_of(std::int32_t position, std::span<const std::int32_t> documents) {
  std::int32_t start = 0;
  for (const std::int32_t offset : documents)
    if (offset <= position) start = offset;
  return start;
}

inline bool sees(std::int32_t query, std::int32_t key, const Visibility& visibility) {
  return key <= query && key >= start_of(query, visibility.documents) &&
         (visibility.window == 0 || query - key < visibility.window);
}

/// A sequence of `T` tokens in documents of drawn lengths from 0 on.
inline DocumentOffsets drawn_documents(std::int64_t T, unsigned seed) {
  std::minstd_rand random(seed);
  DocumentOffsets offsets = {0};
  while (offsets.back() < T) {
    const auto length = static_cast<std::int64_t>(random() % (seed % 3 == 0 ? 4 : static_cast<unsigned>(T) + 1));
    offsets.push_back(static_cast<std::int32_t>(std::min(T, offsets.back() + length)));
  }
  return offsets;
}

inline TokenLists lists_of(const TokenSplit& split, std::span<const std::int32_t> documents) {
  TokenLists lists;
  lists.assign(split, documents);
  return lists;
}

}  // namespace echelon
