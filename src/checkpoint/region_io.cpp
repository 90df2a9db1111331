#include "checkpoint/region_io.h"

#include "base/error.h"
#include "checkpoint/number_formats.h"

#include <algorithm>
#include <vector>

namespace echelon {
namespace {

constexpr std::int64_t tile_bytes = 1 << 20;

DType weight_dtype(const FileTensor& tensor) {
  if (!tensor.dtype) throw Error(fmt::format("numbers of format {} are no weights", tensor.format));
  return *tensor.dtype;
}

// Runs of the region that are moved together, packed in memory.
struct Tile {
  std::int64_t first;
  std::int64_t count;
};

template <class Move>
void for_each_tile(const FileRegion& region, std::int64_t element_bytes, Move&& move) {
  const std::int64_t tile_runs =
      std::max<std::int64_t>(1, tile_bytes / std::max<std::int64_t>(1, region.run_elements * element_bytes));
  for (std::int64_t first = 0; first < region.num_runs; first += tile_runs)
    move(Tile{first, std::min(tile_runs, region.num_runs - first)});
}

// Calls move(offset in the file, offset in the packed tile, bytes) for each contiguous piece of the tile.
template <class Move>
void for_each_piece(const FileTensor& tensor, const FileRegion& region, Tile tile, Move&& move) {
  const std::int64_t element_bytes = size_of(weight_dtype(tensor));
  const std::int64_t run_bytes = region.run_elements * element_bytes;
  const std::int64_t row_bytes = region.tensor_row_elements * element_bytes;
  const std::int64_t first_byte = tensor.first_byte + region.first_element * element_bytes + tile.first * row_bytes;
  if (run_bytes == row_bytes) return move(first_byte, std::int64_t{0}, tile.count * run_bytes);
  for (std::int64_t i = 0; i < tile.count; ++i) move(first_byte + i * row_bytes, i * run_bytes, run_bytes);
}

}  // namespace

void read_region(const File& file, const FileTensor& tensor, const FileRegion& region, DType dtype, void* out) {
  const DType file_dtype = weight_dtype(tensor);
  std::vector<std::byte> raw, runs;
  for_each_tile(region, size_of(file_dtype), [&](Tile tile) {
    const std::int64_t count = tile.count * region.run_elements;
    raw.resize(static_cast<std::size_t>(count * size_of(file_dtype)));
    runs.resize(static_cast<std::size_t>(count * size_of(dtype)));
    for_each_piece(tensor, region, tile, [&](std::int64_t at, std::int64_t in_tile, std::int64_t num_bytes) {
      file.read_at(at, raw.data() + in_tile, num_bytes);
    });
    convert_numbers(file_dtype, raw.data(), dtype, runs.data(), count);
    copy_runs_to_slice(region, tile.first, tile.count, size_of(dtype), runs.data(), static_cast<std::byte*>(out));
  });
}

void write_region(File& file, const FileTensor& tensor, const FileRegion& region, DType dtype, const void* in) {
  const DType file_dtype = weight_dtype(tensor);
  std::vector<std::byte> raw, runs;
  for_each_tile(region, size_of(file_dtype), [&](Tile tile) {
    const std::int64_t count = tile.count * region.run_elements;
    raw.resize(static_cast<std::size_t>(count * size_of(file_dtype)));
    runs.resize(static_cast<std::size_t>(count * size_of(dtype)));
    copy_slice_to_runs(region, tile.first, tile.count, size_of(dtype), static_cast<const std::byte*>(in), runs.data());
    convert_numbers(dtype, runs.data(), file_dtype, raw.data(), count);
    for_each_piece(tensor, region, tile, [&](std::int64_t at, std::int64_t in_tile, std::int64_t num_bytes) {
      file.write_at(at, raw.data() + in_tile, num_bytes);
    });
  });
}

}  // namespace echelon
