// Cosines and sines of rotary positions (Su et al. 2021, arXiv:2104.09864), with the scalings of Hugging Face's
// modeling_rope_utils:
//
//     linear      every frequency / factor (Chen et al. 2023, arXiv:2306.15595)
//     llama3      low frequencies / factor (Grattafiori et al. 2024, arXiv:2407.21783)
//     yarn        the same between two numbers of turns, and larger cosines and sines (Peng et al. 2023,
//     arXiv:2309.00071) longrope    each frequency / a factor of its own, likewise (Ding et al. 2024, arXiv:2402.13753)
#pragma once

#include "nn/context.h"
#include "ops/ops.h"
#include "spec/model_spec.h"

#include <span>
#include <vector>

namespace echelon {

/// How RoPE turns the columns of a head.
struct Rotation {
  std::vector<double> frequencies;  // radians per position of pair i < rotary_dim / 2
  double attention_factor = 1.0;    // of all cosines and sines
  double growth = 0;                // of queries: at a position times 1 + growth log(1 + floor(position / period))
  std::int64_t period = 1;

  [[nodiscard]] double factor_at(std::int64_t position) const {
    return RopeArgs{
        .x = {}, .y = {}, .cos = {}, .sin = {}, .scale = attention_factor, .growth = growth, .period = period}
        .scale_at(position);
  }
};

/// theta^(-2 i / rotary_dim), scaled as the model says. longrope has other factors for sequences of more than
/// original_max_position_embeddings; `seq_len` is that of the whole run.
[[nodiscard]] Rotation rotation_of(const ModelSpec& model, const RopeSpec& rope, std::int64_t seq_len);

/// [T, rotary_dim / 2] each, in accumulate_dtype: a row for each of a rank's tokens of a sequence. The layers of a
/// stage with the same RopeSpec share them. Where each microbatch has its own positions, the frequencies alone: float64
/// [rotary_dim / 2].
struct RopeTables {
  Tensor cos, sin;
  Tensor frequencies = {};
  Rotation rotation = {};                  // of frequencies
  const RopeTables* of_queries = nullptr;  // if they have others than keys
};

/// Fills what exists of the tables. The angles are computed in float64 whatever the tables' dtype. `positions` are
/// those of the first rows, in the sequence; empty: row i is position i. Rows of padding have position 0.
void upload_rope_tables(Ops& ops, const Rotation& rotation, const RopeTables& tables,
                        std::span<const std::int32_t> positions = {});

/// Rotates heads in place, or back, if the block has RoPE. x [B, T, heads, C]; first_position: of row 0 in the tables.
struct RotatedHeads {
  Tensor x_BTHC;
  bool inverse = false;
  std::int64_t first_position = 0;
};
void rotate_heads(Context& context, const LayerOptions& options, const RopeTables& rope, const RotatedHeads& heads);

}  // namespace echelon
