// Chunks of a rank's tokens, for results that exist for some tokens at a time: logits, and the features of an MLP.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>
#include <vector>

namespace echelon {

struct TokenChunk {
  std::int64_t first = 0, count = 0;
  [[nodiscard]] Tensor of(Tensor all_tokens) const { return all_tokens.rows(first, count); }
};

/// As few chunks of at most `most` tokens as there can be, in order. They have a multiple of `multiple` each, the last
/// one what is left. Where `most` is below it, and with 1, they differ by a token at most.
[[nodiscard]] std::vector<TokenChunk> token_chunks(std::int64_t num_tokens, std::int64_t most, std::int64_t multiple);

}  // namespace echelon
