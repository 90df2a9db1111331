// Which rows a block has: tiles of the experts' rows one after another, found from the offsets. For .cu files alone.
#pragma once

#include "cuda/device/lanes.h"

namespace echelon::cuda {

struct RowTile {
  int expert = -1;  // none: there are fewer tiles
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;  // of the expert from there on, also past the tile
};

/// Tile number `tile` of tile_rows rows; the same on all threads. A warp looks at 32 experts at a time.
template <int tile_rows>
__device__ __forceinline__ RowTile row_tile(const std::int32_t* offsets, int E, std::int64_t tile) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  std::int64_t before = 0;  // tiles of the experts that were looked at
  for (int start = 0; start < E; start += warp_size) {
    const int e = start + lane;
    const int first = e < E ? offsets[e] : 0, rows = e < E ? offsets[e + 1] - first : 0,
              tiles = (rows + tile_rows - 1) / tile_rows;
    int through = tiles;  // of these 32, up to this one
    for (int distance = 1; distance < warp_size; distance *= 2) {
      const int other = __shfl_up_sync(whole_warp, through, static_cast<unsigned>(distance));
      if (lane >= distance) through += other;
    }
    const unsigned past = __ballot_sync(whole_warp, before + through > tile);
    if (past != 0) {
      const int found = __ffs(static_cast<int>(past)) - 1;
      const std::int64_t in_expert = (tile - before - __shfl_sync(whole_warp, through - tiles, found)) * tile_rows;
      return {start + found, __shfl_sync(whole_warp, first, found) + in_expert,
              __shfl_sync(whole_warp, rows, found) - in_expert};
    }
    before += __shfl_sync(whole_warp, through, warp_size - 1);
  }
  return {};
}

}  // namespace echelon::cuda
