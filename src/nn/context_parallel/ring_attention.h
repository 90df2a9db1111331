// Attention of a rank's queries to the keys of all ranks of its cp group, which go from rank to rank in a ring (Liu et
// al. 2023, Ring Attention, arXiv:2310.01889).
//
// At hop d = 0 ... cp - 1 a rank has the block of keys and values of the rank d places before it, attends to it, and
// meanwhile sends it on to the next rank and receives the next block:
//
//     forward     out, lse = merge of the cp parts (merge_attention), in accumulate_dtype
//     backward    dq = sum of the cp parts. The gradients of a block follow it: they start at hop 1, each rank adds its
//                 part, and after hop cp - 1 they are at home, where the part of the block's own queries is added.
//
// A rank sends, with b bytes of its keys and values: forward (cp - 1) b; backward (cp - 1) b again and as many values
// in accumulate_dtype. Two blocks are in memory at a time. Where neighbours exchange heads (ulysses_ring), a block is
// that of a group of them.
#pragma once

#include "nn/key_attention.h"

namespace echelon {

/// options.tokens says which tokens the queries and blocks are. The microbatch has the ranges of keys of every block.
[[nodiscard]] std::unique_ptr<KeyAttention> make_ring_attention(const LayerOptions& options, const HeadSplit& split);

}  // namespace echelon
