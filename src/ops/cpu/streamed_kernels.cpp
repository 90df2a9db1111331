#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/streamed_kernels.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/gemm_packing-inl.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/streamed_kernels.h"

#include <array>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

constexpr int lanes = HWY_LANES(float);
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr int most_vectors = 4, lone_rows = 28;
#else
constexpr int most_vectors = 2, lone_rows = 0;
#endif
// Of AVX-512 alone: elsewhere vectors are short, and these are the whole ones.
constexpr int half_lanes = HWY_TARGET <= HWY_AVX3 ? 8 : lanes;

#if HWY_TARGET == HWY_SCALAR

const StreamedKernels* Streamed(DType /*dtype*/) { return nullptr; }

#else

/// T: of the source.
template <class T, int lanes_>
struct Vectors {
  static constexpr int width = lanes_, values_per_unit = 1,
                       lone_rows = std::is_same_v<T, float> ? echelon::HWY_NAMESPACE::lone_rows : 0;
  using D = hn::FixedTag<float, width>;
  using Sums = hn::Vec<D>;
  using Row = Sums;
  using Source = T;
  static constexpr int rows_ahead(int /*vectors*/) { return StreamedKernels::most_rows; }
  static HWY_INLINE Sums zero() { return hn::Zero(D()); }
  static HWY_INLINE Sums load(const float* p) { return hn::LoadU(D(), p); }
  static HWY_INLINE void store(float* p, Sums x) { hn::StoreU(x, D(), p); }
  static HWY_INLINE Sums add(Sums x, Sums y) { return hn::Add(x, y); }
  static HWY_INLINE Row row(const float* p) { return load(p); }
  static HWY_INLINE Sums broadcast(float unit) { return hn::Set(D(), unit); }
  static HWY_INLINE Sums multiply_add(Sums sum, Sums a, Row b) { return hn::MulAdd(a, b, sum); }
  HWY_INLINE Row take(const T* from, std::int64_t /*stride*/, float* into) const {
    const Row row = echelon::HWY_NAMESPACE::load(D(), from);
    store(into, row);
    return row;
  }
};

#include "ops/cpu/streamed_tile-inl.h"

template <class T, int width, int... vectors_minus_one>
constexpr std::array<void (*)(const PackArgs&), 5> packings(std::integer_sequence<int, vectors_minus_one...>) {
  return {nullptr, &pack_columns<T, (vectors_minus_one + 1) * width>...};
}

template <class T>
constexpr StreamedKernels streamed = {
    .lone_rows = Vectors<T, lanes>::lone_rows,
    .lanes = lanes,
    .half_lanes = half_lanes < lanes ? half_lanes : 0,
    .most_vectors = most_vectors,
    .reads_rows = std::is_same_v<T, float>,
    .pack_rows = pack_rows<T, most_vectors * lanes>,
    .pack_columns = packings<T, lanes>(StreamedVectors()),
    .pack_half_columns = packings<T, half_lanes>(StreamedVectors()),
    .multiply = multiply_streamed_tile<Vectors<T, lanes>, Vectors<float, lanes>, Vectors<float, half_lanes> >};

const StreamedKernels* Streamed(DType dtype) {
  switch (dtype) {
    case DType::float16: return &streamed<float16>;
    case DType::bfloat16: return &streamed<bfloat16>;
    default: return &streamed<float>;
  }
}

#endif

void Transpose(const TransposeArgs& t) {
  for (std::int64_t i = 0; i < t.rows; i += 4) {
    const float* from = t.from + i * t.from_stride;
    float* into = t.into + i;
    std::int64_t j = 0;
    if (i + 4 <= t.rows)
      for (; j + 4 <= t.columns; j += 4)
        transpose_4x4(from + j, t.from_stride, into + j * t.into_stride, t.into_stride);
    for (; j < t.columns; ++j)
      for (std::int64_t k = 0; k < std::min<std::int64_t>(4, t.rows - i); ++k)
        into[j * t.into_stride + k] = from[k * t.from_stride + j];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(Streamed);
HWY_EXPORT(Transpose);

const StreamedKernels* streamed_kernels(DType dtype) { return HWY_DYNAMIC_DISPATCH(Streamed)(dtype); }
void transpose(const TransposeArgs& args) { HWY_DYNAMIC_DISPATCH(Transpose)(args); }

}  // namespace echelon
#endif
