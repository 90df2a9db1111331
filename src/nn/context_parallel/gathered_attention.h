// Attention of a rank's queries to the keys of all ranks of its cp group, which it gathers (Llama 3 Team 2024,
// arXiv:2407.21783, section 3.3.2). One kv head after the other: while its queries attend, the next is on its way, so
// that two exist.
//
//     forward     gather k, v of a head; put its rows in ascending order; attend
//     backward    gather again; dk, dv of all positions are addends, whose sums the ranks scatter
//
// With b bytes of its keys and values a rank sends (cp - 1) b forward, and 2 (cp - 1) b backward. Sums over ranks are
// in accumulate_dtype, and rounded once.
#pragma once

#include "nn/key_attention.h"

namespace echelon {

/// options.tokens says which tokens this rank has. The microbatch has the ranges of all keys, and their order.
[[nodiscard]] std::unique_ptr<KeyAttention> make_gathered_attention(const LayerOptions& options,
                                                                    const HeadSplit& split);

}  // namespace echelon
