#include "ops/cpu/product_table.h"

#include <fmt/format.h>

#include <array>

namespace echelon {
namespace {

using enum ProcessorKind;
using enum ProductKernels;

// OpenBLAS divides a matmul among threads without changing bits only with the core types Haswell and SkylakeX (blas.h),
// so other CPUs than x86's have own kernels.
//
// zen3, medians: a step of 6 layers takes 3.21 s by own kernels, 3.08 s by OpenBLAS.
// zen4: own kernels are 1.03 to 1.06 times as fast as Haswell's, native ones 1.9 times as fast as widening ones
// (docs/results/performance.md).
// sapphire_rapids (Granite Rapids, echelon bench, 2026-11-25, twice): own kernels are 1.04 and 1.05 times as fast as
// SkylakeX's and 1.6 times as fast as Haswell's; native ones reach 0.6 of widening ones, AMX's 4.4 (bench_gemm).
// generic_avx2 (the same, with ECHELON_INSTRUCTION_SET=avx2): own kernels are 1.01 times as fast as Haswell's, which
// are kept for less than 1.02.
constexpr std::array<ProductRow, num_processor_kinds> rows = {{
    {generic, own, widened, ""},
    {generic_avx2, openblas, widened, "Haswell", generic_avx2},
    {generic_avx512, own, widened, "SkylakeX", sapphire_rapids, zen3},
    {zen2, openblas, widened, "Haswell", zen3},
    {zen3, openblas, widened, "Haswell", zen3},
    // Computes 512-bit vectors in halves, so OpenBLAS's kernels for AVX2 are the faster ones.
    {zen4, own, native, "Haswell", zen4},
    {zen5, own, native, "SkylakeX", sapphire_rapids, zen4},
    {haswell, openblas, widened, "Haswell", zen3},
    {skylake_x, own, widened, "SkylakeX", sapphire_rapids, zen3},
    {cooper_lake, own, widened, "SkylakeX", sapphire_rapids, zen3},
    {ice_lake_server, own, widened, "SkylakeX", sapphire_rapids, zen3},
    {sapphire_rapids, own, amx, "SkylakeX", sapphire_rapids},
    {neoverse_n1, own, widened, ""},
    {neoverse_v1, own, widened, ""},
    {neoverse_n2, own, widened, ""},
    {neoverse_v2, own, widened, ""},
}};

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].kind != static_cast<ProcessorKind>(i)) return false;
  return true;
}
static_assert(is_in_order());

}  // namespace

const ProductRow& product_row(ProcessorKind kind) { return rows.at(static_cast<std::size_t>(kind)); }

ProductChoice shipped_products(ProcessorKind kind) {
  const ProductRow& row = product_row(kind);
  return {.float32 = row.float32, .bfloat16 = row.bfloat16, .core_type = std::string(row.core_type)};
}

std::string shipped_source(ProcessorKind kind) {
  const ProductRow& row = product_row(kind);
  if (!row.measured || !row.bfloat16_measured) return fmt::format("shipped for {}, not measured", name_of(kind));
  std::string measured;
  if (*row.measured != kind) measured = fmt::format(", measured on {}", name_of(*row.measured));
  if (*row.bfloat16_measured != *row.measured) measured += fmt::format(" and {}", name_of(*row.bfloat16_measured));
  return fmt::format("shipped for {}{}", name_of(kind), measured);
}

}  // namespace echelon
