// The kernels that multiply matrices on all ranks of a run.
#pragma once

#include "comm/mesh.h"
#include "ops/cpu/gemm_choice.h"

namespace echelon {

/// Rank 0's choice, on every rank; for processes a collective over the host's mesh, before anything is computed. What a
/// checkpoint was computed by is used if all ranks can. Throws Error, which names its host and its CPU, on a rank that
/// cannot do what rank 0 chose.
[[nodiscard]] ChosenProducts agreed_products(Mesh& host, const ProductRequest& request);

}  // namespace echelon
