// Panels and tiles in float32 for every instruction set (Goto and van de Geijn 2008; Van Zee and van de Geijn 2015). A
// tile of c stays in registers while one column of a's panel, value by value, multiplies one row of b's panel.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/gemm_kernels.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/gemm_kernels.h"
#include "ops/cpu/gemm_packing-inl.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/streamed_kernels.h"

#include <algorithm>
#include <array>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

// As many sums as leave registers for the rest: of 32 vectors, 28 + 2 of b + 1 of a; of 16, 12 + 2 + 1.
constexpr int lanes = HWY_LANES(float);
// Of a block, a panel of b stays in the first cache (32 KiB of a CPU with AVX2), those of a in the second.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr int tile_rows = 14, tile_vectors = 2;
constexpr std::int64_t most_units = 768, most_tiles = 8;
constexpr bool fetches_b = true;  // soon before it is read: a panel of b exceeds the first cache
#else
constexpr int tile_rows = 6, tile_vectors = lanes == 1 ? 4 : 2;
constexpr std::int64_t most_units = 384, most_tiles = 18;
constexpr bool fetches_b = false;  // 1.7 % faster without, on a Zen 3; 3.5 % on two threads
#endif
constexpr std::int64_t row_stride = row_stride_of(most_units);
constexpr int tile_columns = tile_vectors * lanes;
static_assert(tile_columns % 4 == 0, "pack_columns takes four at a time");
constexpr int line = 16;  // values that are fetched together
constexpr int panel_rows = (tile_rows + lanes - 1) / lanes * lanes;

template <class T>
void pack_a_rows(const PackArgs& p) {
  for (std::int64_t i = 0; i < p.count; ++i) {
    const T* from = static_cast<const T*>(p.from) + i * p.stride;
    float* into = p.into + i * row_stride;
    for_lanes<float>(0, p.k, [=](auto part, std::int64_t l) HWY_ATTR { part.store(part.load(from + l), into + l); });
  }
}

template <int rows, bool is_by_k>
HWY_NOINLINE void multiply_rows(const TileArgs& args) {
  const TileArgs t = args;  // a copy that no store to c can change
  const Tag<float> d;
  Vec<float> sums[rows][tile_vectors];
  HWY_UNROLL(16) for (int i = 0; i < rows; ++i) {
    HWY_UNROLL(4) for (int v = 0; v < tile_vectors; ++v) sums[i][v] = hn::Zero(d);
  }
  const float *a = t.a, *b = t.b;
  TilePrefetch<rows, tile_columns> prefetch(t);
  for (std::int64_t first = 0; first < t.depth; first += prefetch.interval) {
    prefetch.burst(first);
    const std::int64_t last = std::min(t.depth, first + prefetch.interval);
    HWY_UNROLL(4)
    for (std::int64_t l = first; l < last; ++l) {
      Vec<float> b_row[tile_vectors];
      if constexpr (fetches_b)
        HWY_UNROLL(4) for (int i = 0; i < tile_columns; i += line) __builtin_prefetch(b + 16 * tile_columns + i);
      HWY_UNROLL(4) for (int v = 0; v < tile_vectors; ++v) b_row[v] = hn::LoadU(d, b + v * lanes);
      HWY_UNROLL(16) for (int i = 0; i < rows; ++i) {
        const auto a_number = hn::Set(d, is_by_k ? a[i] : a[i * row_stride]);
        HWY_UNROLL(4) for (int v = 0; v < tile_vectors; ++v) sums[i][v] = hn::MulAdd(a_number, b_row[v], sums[i][v]);
      }
      a += is_by_k ? panel_rows : 1;
      b += tile_columns;
    }
  }
  HWY_UNROLL(16) for (int i = 0; i < rows; ++i) {
    HWY_UNROLL(4) for (int v = 0; v < tile_vectors; ++v) {
      float* c = t.c + i * t.ldc + v * lanes;
      hn::StoreU(t.adds ? hn::Add(hn::LoadU(d, c), sums[i][v]) : sums[i][v], d, c);
    }
  }
}

template <bool is_by_k, int... rows_minus_one>
constexpr auto table_of(std::integer_sequence<int, rows_minus_one...>) {
  return std::array{&multiply_rows<rows_minus_one + 1, is_by_k>...};
}

void multiply(const TileArgs& t) {
  static constexpr auto by_row = table_of<false>(std::make_integer_sequence<int, tile_rows>());
  static constexpr auto by_k = table_of<true>(std::make_integer_sequence<int, tile_rows>());
  const auto index = static_cast<std::size_t>(t.rows - 1);
  (t.is_by_k ? by_k : by_row)[index](t);
}

template <class T>
constexpr GemmKernels kernels = {.dtype = dtype_of<T>,
                                 .tile_rows = tile_rows,
                                 .tile_columns = tile_columns,
                                 .panel_rows = panel_rows,
                                 .per_unit = 1,
                                 .most_units = most_units,
                                 .row_stride = row_stride,
                                 .most_tiles = most_tiles,
                                 .pack_a_rows = pack_a_rows<T>,
                                 .pack_a_columns = pack_rows<T, panel_rows>,
                                 .pack_b_rows = pack_rows<T, tile_columns>,
                                 .pack_b_columns = pack_columns<T, tile_columns>,
                                 .multiply = multiply,
                                 .streamed = [] { return streamed_kernels(dtype_of<T>); }};

const GemmKernels* Float32Kernels() { return &kernels<float>; }
const GemmKernels* WideningKernels(DType dtype) {
  return dtype == DType::float16 ? &kernels<float16> : &kernels<bfloat16>;
}

bool UsesAvx512() { return HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3; }

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(Float32Kernels);
HWY_EXPORT(WideningKernels);
HWY_EXPORT(UsesAvx512);

const GemmKernels& float32_kernels() { return *HWY_DYNAMIC_DISPATCH(Float32Kernels)(); }
bool kernels_use_avx512() { return HWY_DYNAMIC_DISPATCH(UsesAvx512)(); }
const GemmKernels& widening_kernels(DType dtype) { return *HWY_DYNAMIC_DISPATCH(WideningKernels)(dtype); }

}  // namespace echelon
#endif
