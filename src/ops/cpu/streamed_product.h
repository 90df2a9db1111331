// What the matmuls with a streamed factor share (gemm_streamed.h).
#pragma once

#include "ops/cpu/gemm.h"
#include "ops/cpu/gemm_splits.h"
#include "ops/cpu/streamed_kernels.h"

#include <cstdint>

namespace echelon {

/// A matmul, its kernels, and the blocks of k that are summed one by one.
struct StreamedProduct {
  const GemmKernels& kernels;
  const StreamedKernels& streamed;
  const GemmProduct& g;
  GemmDepths depths;
  std::int64_t value;  // bytes

  [[nodiscard]] std::int64_t units(std::int64_t values) const { return parts_of(values, kernels.per_unit); }
  /// Of tiles as long as c's rows are.
  [[nodiscard]] std::int64_t panel_columns() const { return std::int64_t{streamed.lanes} * streamed.most_vectors; }
};

inline GemmRange streamed_tile(std::int64_t rows, std::int64_t index, int most_rows = StreamedKernels::most_rows) {
  return part(rows, parts_of(rows, most_rows), index);
}

}  // namespace echelon
