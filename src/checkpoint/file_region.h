// A rank's slice of a parameter as equal runs of a tensor in a file: the one place that knows padding, slices and
// transposition.
#pragma once

#include "checkpoint/weight_names.h"
#include "nn/param.h"

#include <cstddef>
#include <cstdint>

namespace echelon {

/// Run i of the file is `run_elements` numbers from `first_element + i * tensor_row_elements` on. It is row i of the
/// slice, or column i if `transposed`.
struct FileRegion {
  std::int64_t first_element = 0;
  std::int64_t num_runs = 0;
  std::int64_t run_elements = 0;
  std::int64_t tensor_row_elements = 0;
  bool transposed = false;
  std::int64_t slice_row_elements = 0;  // numbers per row of the slice, padding included
  bool is_padded = false;               // the slice reaches past the parameter
};

/// One or two dims. The rectangle is that of the whole parameter.
[[nodiscard]] FileRegion file_region(const Param& param, const FileRectangle& rectangle);

/// Runs [first, first + count), packed one after the other at `runs`, to their places in the slice and back. Numbers of
/// `element_bytes` (2, 4 or 8).
void copy_runs_to_slice(const FileRegion& region, std::int64_t first, std::int64_t count, std::int64_t element_bytes,
                        const std::byte* runs, std::byte* slice);
void copy_slice_to_runs(const FileRegion& region, std::int64_t first, std::int64_t count, std::int64_t element_bytes,
                        const std::byte* slice, std::byte* runs);

}  // namespace echelon
