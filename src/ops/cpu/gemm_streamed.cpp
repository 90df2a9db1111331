#include "ops/cpu/gemm_streamed.h"

#include "ops/cpu/streamed_along_k.h"
#include "ops/cpu/streamed_by_rows.h"
#include "ops/cpu/streamed_sums.h"

namespace echelon {
namespace {

// Up to so many rows, packing the other factor takes longer than what its panels save; where b is streamed by its rows
// along k, sums are loaded and stored more often.
constexpr std::int64_t most_rows_of_tokens = 192, most_rows_along_k = 40;

GemmDepths depths_of(const GemmKernels& kernels, const GemmProduct& g) {
  return {g.k, kernels.per_unit, kernels.grain, parts_of(parts_of(g.k, kernels.per_unit), kernels.most_units)};
}

}  // namespace

std::optional<StreamedDim> streamed_dim(const GemmKernels& kernels, const GemmProduct& g) {
  const StreamedKernels* streamed = kernels.streamed == nullptr ? nullptr : kernels.streamed();
  if (streamed == nullptr) return std::nullopt;
  const std::int64_t width = std::int64_t{streamed->lanes} * streamed->most_vectors, per_unit = kernels.per_unit;
  const auto are_units = [&](const Factor& factor) { return factor.stride % per_unit == 0 && g.k % per_unit == 0; };
  if (g.a.is_transposed) {
    const bool fits = g.k <= most_rows_of_tokens && g.n % width == 0;
    return !g.b.is_transposed && fits && g.accumulates && g.c_dtype == DType::float32 ? std::optional(StreamedDim::rows)
                                                                                      : std::nullopt;
  }
  const bool fits = g.m <= (g.b.is_transposed ? most_rows_of_tokens : most_rows_along_k);
  if (g.b.is_transposed) {
    const bool adds_blocks = g.accumulates && !is_half_dtype(g.c_dtype);  // one by one to c, which no layer asks for
    return fits && are_units(g.b) && !adds_blocks ? std::optional(StreamedDim::columns) : std::nullopt;
  }
  return fits && are_units(g.a) && g.n % width == 0 ? std::optional(StreamedDim::columns) : std::nullopt;
}

void multiply_streamed(const GemmKernels& kernels, const GemmProduct& g, GemmRange part, const GemmProduct* next) {
  const StreamedProduct call{kernels, *kernels.streamed(), g, depths_of(kernels, g), size_of(kernels.dtype)};
  if (g.a.is_transposed) return StreamedSums(call).multiply(part);
  if (g.b.is_transposed) return StreamedByRows(call).multiply(part);
  StreamedAlongK(call, next == nullptr ? nullptr : next->b.data).multiply(part);
}

}  // namespace echelon
