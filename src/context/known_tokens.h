// The tokens of a rank, made once for all that ask: a search for a layout asks for those of few splits thousands of
// times, and they take time and memory in proportion to the sequence.
#pragma once

#include "context/rank_tokens.h"

#include <memory>

namespace echelon {

/// What rank_tokens() gives, shared with the last who asked for the same. Any thread may call it.
[[nodiscard]] std::shared_ptr<const RankTokens> known_rank_tokens(const TokenSplit& split, const KeyExchange& exchange,
                                                                  int rank);

}  // namespace echelon
