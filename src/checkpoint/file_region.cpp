#include "checkpoint/file_region.h"

#include "base/error.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace echelon {
namespace {

struct Range {
  std::int64_t first;
  std::int64_t count;  // of numbers that exist
};

// What this rank holds of one dim, without the padding.
Range held(const Param& param, int dim) {
  const std::int64_t size = param.global_sizes[dim];
  if (dim != param.split_dim) return {0, size};
  const std::int64_t first = std::min(param.split_first, size);
  return {first, std::clamp<std::int64_t>(size - first, 0, param.split_count)};
}

enum class Direction : std::uint8_t { to_slice, to_runs };

struct Walk {
  const FileRegion& region;
  std::int64_t first;
  std::int64_t count;
};

template <Direction direction, class Number>
void copy(Number* run, Number* slice, std::int64_t count) {
  if constexpr (direction == Direction::to_slice) std::copy_n(run, count, slice);
  if constexpr (direction == Direction::to_runs) std::copy_n(slice, count, run);
}

template <Direction direction, class Number>
void walk(const Walk& w, Number* runs, Number* slice) {
  const std::int64_t n = w.region.run_elements;
  const std::int64_t stride = w.region.slice_row_elements;
  if (!w.region.transposed) {
    for (std::int64_t i = 0; i < w.count; ++i) copy<direction>(runs + i * n, slice + (w.first + i) * stride, n);
    return;
  }
  constexpr std::int64_t block = 32;  // so that both sides stay in the cache
  for (std::int64_t i0 = 0; i0 < w.count; i0 += block)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = i0; i < std::min(i0 + block, w.count); ++i)
        copy<direction>(runs + i * n + j, slice + j * stride + w.first + i, 1);
}

template <Direction direction>
void walk_bytes(const Walk& w, std::int64_t element_bytes, std::byte* runs, std::byte* slice) {
  switch (element_bytes) {
    case 2: return walk<direction>(w, reinterpret_cast<std::uint16_t*>(runs), reinterpret_cast<std::uint16_t*>(slice));
    case 4: return walk<direction>(w, reinterpret_cast<std::uint32_t*>(runs), reinterpret_cast<std::uint32_t*>(slice));
    case 8: return walk<direction>(w, reinterpret_cast<std::uint64_t*>(runs), reinterpret_cast<std::uint64_t*>(slice));
  }
}

}  // namespace

FileRegion file_region(const Param& param, const FileRectangle& rectangle) {
  const int num_dims = param.global_sizes.num_dims();
  require(num_dims == 1 || num_dims == 2, "parameter '{}' {} has neither one nor two dims", param.name,
          to_string(param.global_sizes));
  Range rows = num_dims == 2 ? held(param, 0) : Range{0, 1};
  Range cols = held(param, num_dims - 1);
  FileRegion region;
  region.slice_row_elements = param.local_sizes()[-1];
  region.is_padded = rows.count * cols.count < param.local_sizes().num_elements();
  region.transposed = rectangle.transposed;
  region.tensor_row_elements = rectangle.tensor_sizes[-1];
  if (rectangle.transposed) std::swap(rows, cols);  // from here on rows and columns of the file
  region.first_element =
      (rectangle.first_row + rows.first) * region.tensor_row_elements + rectangle.first_col + cols.first;
  region.num_runs = cols.count == 0 ? 0 : rows.count;
  region.run_elements = cols.count;
  return region;
}

void copy_runs_to_slice(const FileRegion& region, std::int64_t first, std::int64_t count, std::int64_t element_bytes,
                        const std::byte* runs, std::byte* slice) {
  walk_bytes<Direction::to_slice>({region, first, count}, element_bytes, const_cast<std::byte*>(runs), slice);
}

void copy_slice_to_runs(const FileRegion& region, std::int64_t first, std::int64_t count, std::int64_t element_bytes,
                        const std::byte* slice, std::byte* runs) {
  walk_bytes<Direction::to_runs>({region, first, count}, element_bytes, runs, const_cast<std::byte*>(slice));
}

}  // namespace echelon
