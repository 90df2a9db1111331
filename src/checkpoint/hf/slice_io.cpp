#include "checkpoint/hf/slice_io.h"

#include "base/error.h"
#include "checkpoint/safetensors/convert_values.h"

#include <algorithm>
#include <vector>

namespace echelon {
namespace {

constexpr std::int64_t tile_bytes = 1 << 20;

DType weight_dtype(const FileTensor& tensor) {
  if (!tensor.dtype) throw Error(fmt::format("values of format {} are not weights", tensor.format));
  return *tensor.dtype;
}

/// A rectangle of a file's tensor and of a slice in memory.
struct Region {
  TensorSlice in_file;
  std::int64_t first = 0;   // element of the slice where the rectangle starts,
  std::int64_t stride = 0;  // stride between rows of the parameter
  bool transposed = false;  // a row of the file is a column of the parameter

  [[nodiscard]] std::int64_t num_rows() const {
    return in_file.row() == 0 ? 0 : in_file.num_elements() / in_file.row();
  }
};

// The outputs of a linear layer are the rows of its weight, and the columns of its bias, which is one row.
std::vector<Region> regions_of(const FilePlace& place, const TensorSlice& slice) {
  std::vector<Region> regions;
  const bool is_bias = slice.global_sizes().num_dims() == 1;
  for (const SliceRectangle& part : rectangles_of(slice)) {
    const Range outputs = is_bias ? part.columns : part.rows, inputs = is_bias ? part.rows : part.columns;
    place.rows.for_each_block(outputs, [&](Range block, std::int64_t first_in_file) {
      const Range in_file = {first_in_file, block.count};
      const bool is_along_columns = is_bias || place.transposed;
      regions.push_back({.in_file = TensorSlice(place.sizes, is_along_columns ? inputs : in_file,
                                                is_along_columns ? in_file : inputs),
                         .first = part.first + (block.first - outputs.first) * (is_bias ? 1 : part.stride),
                         .stride = part.stride,
                         .transposed = place.transposed});
    });
  }
  return regions;
}

/// Rows of a region that are copied together, packed in memory.
struct Tile {
  const Region& region;
  std::int64_t first_row;
  TensorSlice in_file;
};

template <class Move>
void for_each_tile(const FilePlace& place, const TensorSlice& slice, std::int64_t element_bytes, Move&& move) {
  for (const Region& region : regions_of(place, slice)) {
    const std::int64_t n = region.in_file.row(), num_rows = region.num_rows();
    const std::int64_t most_rows = std::max<std::int64_t>(1, tile_bytes / std::max<std::int64_t>(1, n * element_bytes));
    for (std::int64_t first = 0; first < num_rows; first += most_rows)
      move(Tile{region, first, region.in_file.elements({first * n, std::min(most_rows, num_rows - first) * n})});
  }
}

enum class Direction : std::uint8_t { to_slice, to_tile };

template <Direction direction, class Number>
void copy(Number* packed, Number* slice, std::int64_t count) {
  if constexpr (direction == Direction::to_slice) std::copy_n(packed, count, slice);
  if constexpr (direction == Direction::to_tile) std::copy_n(slice, count, packed);
}

template <Direction direction, class Number>
void copy_tile(const Tile& tile, Number* packed, Number* slice) {
  const Region& region = tile.region;
  const std::int64_t n = region.in_file.row(), num_rows = tile.in_file.num_elements() / n, stride = region.stride;
  slice += region.first;
  if (!region.transposed) {
    for (std::int64_t i = 0; i < num_rows; ++i)
      copy<direction>(packed + i * n, slice + (tile.first_row + i) * stride, n);
    return;
  }
  constexpr std::int64_t block = 32;  // so that both sides stay in the cache
  for (std::int64_t i0 = 0; i0 < num_rows; i0 += block)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = i0; i < std::min(i0 + block, num_rows); ++i)
        copy<direction>(packed + i * n + j, slice + j * stride + tile.first_row + i, 1);
}

template <Direction direction>
void copy_bytes(const Tile& tile, std::int64_t element_bytes, std::byte* packed, std::byte* slice) {
  const auto as = [&]<class Number>(Number) {
    copy_tile<direction>(tile, reinterpret_cast<Number*>(packed), reinterpret_cast<Number*>(slice));
  };
  switch (element_bytes) {
    case 2: return as(std::uint16_t{});
    case 4: return as(std::uint32_t{});
    case 8: return as(std::uint64_t{});
  }
}

/// visit(offset in the file, offset in the packed tile, bytes) for each contiguous piece of the tile.
template <class Visit>
void for_each_piece(const FileTensor& tensor, const Tile& tile, Visit&& visit) {
  const std::int64_t element_bytes = size_of(weight_dtype(tensor));
  tile.in_file.for_each_run([&](const Run& run) {
    visit(tensor.first_byte + run.global * element_bytes, run.local * element_bytes, run.count * element_bytes);
  });
}

}  // namespace

void read_slice(const File& file, const FileTensor& tensor, const FilePlace& place, const TensorSlice& slice,
                DType dtype, void* out) {
  const DType file_dtype = weight_dtype(tensor);
  std::vector<std::byte> raw, packed;
  for_each_tile(place, slice, size_of(file_dtype), [&](const Tile& tile) {
    const std::int64_t count = tile.in_file.num_elements();
    raw.resize(static_cast<std::size_t>(count * size_of(file_dtype)));
    packed.resize(static_cast<std::size_t>(count * size_of(dtype)));
    for_each_piece(tensor, tile, [&](std::int64_t at, std::int64_t in_tile, std::int64_t num_bytes) {
      file.read_at(at, raw.data() + in_tile, num_bytes);
    });
    convert_values(file_dtype, raw.data(), dtype, packed.data(), count);
    copy_bytes<Direction::to_slice>(tile, size_of(dtype), packed.data(), static_cast<std::byte*>(out));
  });
}

std::int64_t write_slice(File& file, const FileTensor& tensor, const FilePlace& place, const TensorSlice& slice,
                         DType dtype, const void* in) {
  const DType file_dtype = weight_dtype(tensor);
  std::vector<std::byte> raw, packed;
  std::int64_t num_written = 0;
  for_each_tile(place, slice, size_of(file_dtype), [&](const Tile& tile) {
    const std::int64_t count = tile.in_file.num_elements();
    raw.resize(static_cast<std::size_t>(count * size_of(file_dtype)));
    packed.resize(static_cast<std::size_t>(count * size_of(dtype)));
    copy_bytes<Direction::to_tile>(tile, size_of(dtype), packed.data(),
                                   const_cast<std::byte*>(static_cast<const std::byte*>(in)));
    convert_values(dtype, packed.data(), file_dtype, raw.data(), count);
    for_each_piece(tensor, tile, [&](std::int64_t at, std::int64_t in_tile, std::int64_t num_bytes) {
      file.write_at(at, raw.data() + in_tile, num_bytes);
    });
    num_written += count;
  });
  return num_written;
}

}  // namespace echelon
