#include "cuda/ops/float8.h"

#include "cuda/ops/float8_scale.h"
#include "cuda/ops/numbers.h"

#include <algorithm>

namespace echelon::cuda {
namespace {

using namespace float8;

// Of a block: a thread rounds 4 rows of 8 columns, so that it has 4 bytes of each column.
constexpr int tile_rows = 64, tile_columns = 128, thread_rows = 4, thread_columns = 8;
constexpr int words_of_column = tile_rows / thread_rows, pitch = words_of_column + 1;
static_assert(block_threads == words_of_column * (tile_columns / thread_columns));

struct Tile {
  std::int64_t first_row, first_column;
};

__device__ __forceinline__ Pack<unsigned char, thread_columns> rounded(const Pack<float, thread_columns>& x,
                                                                       float scale, __nv_fp8_interpretation_t format) {
  Pack<unsigned char, thread_columns> bytes;
#pragma unroll
  for (int j = 0; j < thread_columns; j += 2) {
    const float2 two = make_float2(x.at[j] * scale, x.at[j + 1] * scale);
    const unsigned short both = format == __NV_E4M3 ? __nv_cvt_float2_to_fp8x2(two, __NV_SATFINITE, __NV_E4M3)
                                                    : __nv_cvt_float2_to_fp8x2(two, __NV_SATFINITE, __NV_E5M2);
    bytes.at[j] = static_cast<unsigned char>(both);
    bytes.at[j + 1] = static_cast<unsigned char>(both >> 8);
  }
  return bytes;
}

/// Of a tile's columns, 16 rows at a time.
template <class T>
__device__ __forceinline__ void store_turned(const RoundedSegment<T>& of, const Tile& tile, const unsigned* turned) {
  constexpr int word_bytes = 4, words = 4, packs_of_column = words_of_column / words, pack_rows = words * word_bytes;
  for (int i = static_cast<int>(threadIdx.x); i < tile_columns * packs_of_column; i += block_threads) {
    const int column = i / packs_of_column, first_word = i % packs_of_column * words;
    const std::int64_t to_row = tile.first_column + column, to_column = tile.first_row + first_word * word_bytes;
    if (to_row >= of.C || to_column >= of.R) continue;
    Pack<unsigned char, pack_rows> bytes;
#pragma unroll
    for (int k = 0; k < words; ++k) {
      const unsigned word = turned[column * pitch + first_word + k];
      memcpy(bytes.at + k * word_bytes, &word, word_bytes);
    }
    store_pack(of.transposed + to_row * of.R + to_column, bytes);
  }
}

/// Whole lines are read, and 64 bytes in a row are written transposed.
template <class T>
__global__ void __launch_bounds__(block_threads) round_kernel(RoundedSegments<T> segments) {
  __shared__ unsigned turned[tile_columns * pitch];
  const int block = static_cast<int>(blockIdx.x), i_segment = segments.of_block(block);
  const RoundedSegment<T>& of = segments.at[i_segment];
  const std::int64_t i_tile = block - segments.first_block[i_segment],
                     column_tiles = (of.C + tile_columns - 1) / tile_columns;
  const Tile tile = {i_tile / column_tiles * tile_rows, i_tile % column_tiles * tile_columns};
  constexpr int packs_of_row = tile_columns / thread_columns;
  const int i_word = static_cast<int>(threadIdx.x) / packs_of_row,
            column = static_cast<int>(threadIdx.x) % packs_of_row * thread_columns;
  const std::int64_t row = tile.first_row + i_word * thread_rows;
  const Scale of_tensor = scale_of(*of.amax, of.format);
  const float scale = of_tensor.forth;
  if (i_tile == 0 && threadIdx.x == 0) *of.back = of_tensor.back;
  unsigned words[thread_columns] = {};
#pragma unroll
  for (int r = 0; r < thread_rows; ++r) {
    if (row + r >= of.R || tile.first_column + column >= of.C) continue;
    const std::int64_t at = (row + r) * of.C + tile.first_column + column;
    const auto bytes = rounded(widen(load_pack<thread_columns>(of.x + at)), scale, of.format);
    if (of.as_is != nullptr) store_pack(of.as_is + at, bytes);
#pragma unroll
    for (int j = 0; j < thread_columns; ++j) words[j] |= static_cast<unsigned>(bytes.at[j]) << (8 * r);
  }
  if (of.transposed == nullptr) return;
#pragma unroll
  for (int j = 0; j < thread_columns; ++j) turned[(column + j) * pitch + i_word] = words[j];
  __syncthreads();
  store_turned(of, tile, turned);
}

constexpr std::int64_t line_bytes = 256;
std::int64_t lines_of(const Tensor& x) { return (x.num_elements() + line_bytes - 1) / line_bytes * line_bytes; }

/// The values as they are, then those transposed, then the last line.
struct RoundedParts {
  std::byte *as_is = nullptr, *transposed = nullptr;
  LastLine* last_line = nullptr;
};
RoundedParts parts_of(const Tensor& x, const RoundedOperand& rounded) {
  RoundedParts parts;
  std::byte* end = rounded.memory.data;
  if (rounded.order != Float8Order::transposed) end = (parts.as_is = end) + lines_of(x);
  if (rounded.order != Float8Order::as_is) end = (parts.transposed = end) + lines_of(x);
  parts.last_line = reinterpret_cast<LastLine*>(end);
  return parts;
}

template <class T>
RoundedSegment<T> segment_of(const OperandRounding& rounding) {
  const RoundedParts parts = parts_of(rounding.x, rounding.to);
  return {reinterpret_cast<const T*>(rounding.x.data),
          reinterpret_cast<unsigned char*>(parts.as_is),
          reinterpret_cast<unsigned char*>(parts.transposed),
          &parts.last_line->back,
          rounding.x.has_amax ? reinterpret_cast<unsigned*>(rounding.x.amax) : &parts.last_line->amax,
          rounding.x.size(0),
          rounding.x.size(1),
          rounding.format == OperandFormat::float8_e5m2 ? __NV_E5M2 : __NV_E4M3};
}

// Each operand whose largest magnitude is not known has blocks for it in proportion to its size.
template <class T>
void round_as(const std::vector<OperandRounding>& roundings, const ComputeLane& lane) {
  std::int64_t num_elements = 0;
  for (const OperandRounding& rounding : roundings)
    if (rounding.needs_amax()) num_elements += rounding.x.num_elements();
  constexpr std::int64_t least_elements = std::int64_t{block_threads} * pack_size<T>;
  const std::int64_t blocks = std::int64_t{8} * lane.num_multiprocessors,
                     elements = std::max(least_elements, blocks_for(num_elements, blocks));
  RoundedSegments<T> by_share, by_tile;
  for (const OperandRounding& rounding : roundings) {
    const RoundedSegment<T> segment = segment_of<T>(rounding);
    if (rounding.needs_amax()) by_share.add(segment, blocks_for(rounding.x.num_elements(), elements));
    by_tile.add(segment, blocks_for(segment.R, tile_rows) * blocks_for(segment.C, tile_columns));
  }
  launch({.num_blocks = by_share.num_blocks(), .num_threads = block_threads, .stream = lane.stream}, amax_kernel<T>,
         by_share, lane.workspace.as<unsigned>(by_share.num_blocks()), lane.workspace.tickets());
  launch({.num_blocks = by_tile.num_blocks(), .num_threads = block_threads, .stream = lane.stream}, round_kernel<T>,
         by_tile);
}

}  // namespace

Float8Values float8_values(const Tensor& x, const RoundedOperand& rounded, Float8Order order) {
  const RoundedParts parts = parts_of(x, rounded);
  return {order == Float8Order::as_is ? parts.as_is : parts.transposed, &parts.last_line->back};
}

void round_operands(const std::vector<OperandRounding>& roundings, const ComputeLane& lane) {
  if (roundings.empty()) return;
  visit_numbers(roundings.front().x.dtype, [&]<class T>(T) {
    using D = on_device<T>;
    if constexpr (std::is_same_v<D, double>)
      no_kernel_for(DType::float64);
    else
      round_as<D>(roundings, lane);
  });
}

}  // namespace echelon::cuda
