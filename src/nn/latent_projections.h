// The matmuls and norms of multi-head latent attention (nn/decoder/latent/latent_attention.h) with what a rank has of
// them.
#pragma once

#include "nn/head_split.h"
#include "nn/norm.h"
#include "nn/parallel_linear.h"

#include <string>

namespace echelon {

/// Columns of a head that a latent is expanded to: those of a key that are not rotary, and those of a value.
[[nodiscard]] std::int64_t expanded_head(const ModelSpec& model);

/// x -> `out` values of a token, whole on every rank. Parameter `name`.weight.
[[nodiscard]] Linear whole_linear(const LayerOptions& options, const std::string& name, std::int64_t out);
/// RMSNorm of a latent, whose eps is not the model's. Parameter `name`.weight.
[[nodiscard]] Norm norm_of_latent(const LayerOptions& options, const std::string& name, std::int64_t width);

/// The queries of a rank's heads, from their latent or from x. Parameter `name`.{q_b_proj | q_proj}.weight.
[[nodiscard]] ColumnParallel expanding_query(const LayerOptions& options, const std::string& name,
                                             const HeadSplit& split);
/// The latent -> keys and values of a rank's heads. Parameter `name`.kv_b_proj.weight.
[[nodiscard]] ColumnParallel expanding_keys(const LayerOptions& options, const std::string& name,
                                            const HeadSplit& split);

}  // namespace echelon
