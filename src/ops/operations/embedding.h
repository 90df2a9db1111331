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

/// y[n] += w[(first_token + n) % T]: learned positions. w [max positions, D]. With `positions`, int32 and one for each
/// token of the microbatch: y[n] += w[positions[first_token + n]].
struct PositionsArgs {
  Tensor w, y;
  std::int64_t seq_len = 0;
  std::int64_t first_token = 0;
  Tensor positions = {};
};
/// dw[(first_token + n) % T] += dy[n], or dw[positions[first_token + n]] += dy[n].
struct PositionsBackwardArgs {
  Tensor dy, dw;
  std::int64_t seq_len = 0;
  std::int64_t first_token = 0;
  Tensor positions = {};
};
/// The positions of the rows of x, from first_token on.
[[nodiscard]] inline Tensor positions_of_rows(const Tensor& positions, std::int64_t first_token,
                                              std::int64_t num_rows) {
  return positions.flat().rows(first_token, num_rows);
}

}  // namespace echelon
