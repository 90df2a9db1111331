// The matmuls before and after attention, with the rows and columns that head_split gives a rank.
#pragma once

#include "nn/head_split.h"
#include "nn/norm.h"
#include "nn/parallel_linear.h"

namespace echelon {

/// x -> q, k, v of a rank's heads. Parameters `name`.{q,k,v}_proj.{weight,bias}.
[[nodiscard]] ColumnParallel qkv_projections(const LayerOptions& options, const std::string& name,
                                             const HeadSplit& split);
/// `name`.{q,k}_norm of the whole q and k (OLMo 2).
[[nodiscard]] std::vector<Norm> norms_of_projections(const LayerOptions& options, const std::string& name,
                                                     const HeadSplit& split);
/// The result of a rank's heads -> y. Parameters `name`.o_proj.{weight,bias}.
[[nodiscard]] RowParallel output_projection(const LayerOptions& options, const std::string& name,
                                            const HeadSplit& split);

}  // namespace echelon
