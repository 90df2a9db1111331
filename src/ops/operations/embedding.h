// The embeddings of tokens and of learned positions. Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

/// y[N, D] = w[token - first_row], zero where the row is not in this shard. Tokens int32 [N].
struct EmbeddingArgs {
  Tensor tokens, w, y;
  std::int64_t first_row = 0;
};
/// dw[token - first_row] += dy, in the order of the tokens.
struct EmbeddingBackwardArgs {
  Tensor tokens, dy, dw;
  std::int64_t first_row = 0;
};

/// y[n] += w[(first_token + n) % T]: learned positions. w [max positions, D].
struct PositionsArgs {
  Tensor w, y;
  std::int64_t seq_len = 0;
  std::int64_t first_token = 0;
};
/// dw[(first_token + n) % T] += dy[n].
struct PositionsBackwardArgs {
  Tensor dy, dw;
  std::int64_t seq_len = 0;
  std::int64_t first_token = 0;
};

}  // namespace echelon
