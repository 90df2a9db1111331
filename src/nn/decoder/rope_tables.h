// Cosines and sines of rotary positions (Su et al. 2021, arXiv:2104.09864), with the Llama-3 scaling of low frequencies
// (Hugging Face's rope_type "llama3").
#pragma once

#include "ops/ops.h"
#include "spec/model_spec.h"

#include <vector>

namespace echelon {

/// [positions, head_dim / 2] each, in accumulate_dtype. The layers of a stage share them.
struct RopeTables {
  Tensor cos, sin;
};

/// Radians per position of pair i: rope_theta^(-2 i / head_dim), i < head_dim / 2, scaled if the model says so.
[[nodiscard]] std::vector<double> rope_frequencies(const ModelSpec& model);

/// Fills the tables, which have memory. The angles are computed in float64 whatever the tables' dtype.
void upload_rope_tables(Ops& ops, const ModelSpec& model, const RopeTables& tables);

}  // namespace echelon
