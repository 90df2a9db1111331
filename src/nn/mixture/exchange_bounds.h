// How many rows of other ranks a rank has room for in a round of an exchange. It depends on the config alone.
#pragma once

#include "nn/context.h"
#include "nn/mixture/node_plan.h"

namespace echelon {

/// Q of direct exchanges, and q of those to ranks of features: as many as the bound or the capacity of experts says,
/// and no more than could ever come.
[[nodiscard]] std::int64_t most_rows_of(const LayerOptions& options);

/// What is assumed of exchanges in two hops under `loads`: of all rows, the share of each rank, in the order of
/// LayerOptions; none: even ones.
[[nodiscard]] NodeShares node_shares_of(const LayerOptions& options, const std::vector<double>& loads);
[[nodiscard]] NodeSizes node_sizes_of(const LayerOptions& options);

}  // namespace echelon
