// Attention of a part of the heads to whole sequences: neighbours exchange their tokens for heads before it, and heads
// for tokens after it (nn/context_parallel/head_exchange.h; Jacobs et al. 2023, arXiv:2309.14509).
//
//     forward     q, k, v to heads; attend; out to tokens
//     backward    q, k, v, out and dout to heads, since what is received is not kept; dq, dk, dv to tokens
//
// Where u neighbours are not the whole cp group, their sequences are parts of one, and the groups are a ring (Fang and
// Zhao 2024, USP, arXiv:2405.07719). lse is kept by heads.
#pragma once

#include "nn/key_attention.h"

namespace echelon {

/// options.tokens says how many ranks exchange heads. The microbatch has the order of their tokens. `of_heads`:
/// attention of exchanged_heads() with the tokens of these ranks.
[[nodiscard]] std::unique_ptr<KeyAttention> make_ulysses_attention(const LayerOptions& options,
                                                                   std::unique_ptr<KeyAttention> of_heads);

}  // namespace echelon
