// Cosines and sines of rotary positions (Su et al. 2021, arXiv:2104.09864), with the Llama-3 scaling of low frequencies
// (Hugging Face's rope_type "llama3").
#pragma once

#include "ops/ops.h"
#include "spec/model_spec.h"

#include <span>
#include <vector>

namespace echelon {

/// [T, head_dim / 2] each, in accumulate_dtype: a row for each of a rank's tokens of a sequence. The layers of a stage
/// share them. Where each microbatch has its own positions, the frequencies alone: float64 [head_dim / 2].
struct RopeTables {
  Tensor cos, sin;
  Tensor frequencies = {};
};

/// Radians per position of pair i: rope_theta^(-2 i / head_dim), i < head_dim / 2, scaled if the model says so.
[[nodiscard]] std::vector<double> rope_frequencies(const ModelSpec& model);

/// Fills what exists of the tables. The angles are computed in float64 whatever the tables' dtype. `positions` are
/// those of the first rows, in the sequence; empty: row i is position i. Rows of padding have position 0.
void upload_rope_tables(Ops& ops, const ModelSpec& model, const RopeTables& tables,
                        std::span<const std::int32_t> positions = {});

}  // namespace echelon
