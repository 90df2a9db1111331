// How tensor parallelism shards parameters: the slices of a dim, and Params made of them.
#pragma once

#include "nn/context.h"
#include "nn/param.h"

#include <string>

namespace echelon {

struct Slice {
  std::int64_t first = 0, count = 0;
};

/// Part `index` of `size` entries in `num_parts` consecutive parts that differ by one entry at most.
[[nodiscard]] constexpr Slice even_slice(std::int64_t size, std::int64_t num_parts, std::int64_t index) {
  const std::int64_t first = size * index / num_parts;
  return {first, size * (index + 1) / num_parts - first};
}

/// This rank's tokens of the vocabulary. All slices are equally long, and multiples of
/// options.device.vocabulary_multiple: the last ones may reach past the vocabulary.
[[nodiscard]] Slice vocabulary_slice(const LayerOptions& options);

/// A matrix [out, in] of which every rank has the rows or the columns of `slice`. Initialised normal(0,
/// initializer_range), decays.
[[nodiscard]] Param row_slice_of_matrix(const LayerOptions& options, const std::string& name, Sizes global_sizes,
                                        Slice rows);
[[nodiscard]] Param column_slice_of_matrix(const LayerOptions& options, const std::string& name, Sizes global_sizes,
                                           Slice columns);
/// The part of a bias that belongs to `rows` of its matrix. Zero at first, does not decay.
[[nodiscard]] Param slice_of_bias(const std::string& name, std::int64_t global_size, Slice rows);
/// Whole on every rank, of which each sees num_local_tokens tokens: under sequence parallelism the gradients are summed
/// over tp.
[[nodiscard]] Param replicated(const LayerOptions& options, const std::string& name, Sizes sizes);

/// "model.embed_tokens.weight" or "lm_head.weight": [vocab_size, hidden_size], sharded by vocabulary_slice.
[[nodiscard]] Param vocabulary_matrix(const LayerOptions& options, const std::string& name);

}  // namespace echelon
