// Generation: the model applied to new positions only, over the keys and values that it has seen before.
//
// The caller owns one KvCache per decoder block and calls Stage::decode, first with the prompt, then with one new token
// per sequence at a time. Up to rounding, logits are those of a forward pass over the whole text.
#pragma once

#include "nn/context.h"
#include "nn/decoder/kv_cache.h"

#include <span>

namespace echelon {

/// B sequences are extended together, each by n tokens.
struct DecodeArgs {
  Tensor tokens;                    // int32 [B n]
  std::int64_t num_sequences = 1;   // B
  std::int64_t first_position = 0;  // of the new tokens: so many the caches hold already
  std::span<const KvCache> caches;  // one per decoder block; the new positions are added
  // [B, columns of this rank] in accumulate_dtype: what follows the last new token of each sequence.
  Tensor logits;
};

/// Of each of the two tensors of a KvCache; its positions are options.seq_len, its sequences options.num_sequences.
[[nodiscard]] Sizes kv_cache_sizes(const LayerOptions& options);

}  // namespace echelon
