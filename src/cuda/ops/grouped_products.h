// Products of groups of rows: each expert's rows with its matrix. Only the device knows how many rows an expert has. So
// kernels are started for the largest possible number of tiles, and each block finds its tile, if any, from the
// offsets.
#pragma once

#include "cuda/device/launch.h"
#include "ops/operations/mixture/grouped_matmul.h"

#include <algorithm>

namespace echelon::cuda {

/// In tensor cores. False, and nothing is done, for formats and sizes that they do not take: all but bfloat16 in rows
/// of multiples of 8.
[[nodiscard]] bool mma_grouped_matmul(const GroupedMatmulArgs& args, cudaStream_t stream);
[[nodiscard]] bool mma_grouped_matmul_backward_weight(const GroupedMatmulBackwardWeightArgs& args, cudaStream_t stream);

/// The most tiles that R rows of E experts can make, the last of each expert being a part of one.
[[nodiscard]] constexpr std::int64_t most_row_tiles(std::int64_t R, std::int64_t E, std::int64_t tile_rows) {
  return R / tile_rows + std::min(R, E);
}

}  // namespace echelon::cuda
