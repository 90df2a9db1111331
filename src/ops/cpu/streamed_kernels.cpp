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

constexpr int lanes = HWY_LANES(float), most_rows = StreamedKernels::most_rows;
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr int most_vectors = 4;
#else
constexpr int most_vectors = 2;
#endif
// Of AVX-512 alone: elsewhere vectors are short, and these are the whole ones.
constexpr int half_lanes = HWY_TARGET <= HWY_AVX3 ? 8 : lanes;

#if HWY_TARGET == HWY_SCALAR

const StreamedKernels* Streamed(DType /*dtype*/) { return nullptr; }

#else

/// T: of the source.
template <class T, int width, int rows, int vectors, Streamed streamed>
HWY_NOINLINE void multiply_streamed(const StreamedTile& args) {
  const StreamedTile t = args;  // a copy that no store to c can change
  const hn::FixedTag<float, width> d;
  using V = hn::Vec<decltype(d)>;
  constexpr bool is_of_b = streamed == Streamed::b || streamed == Streamed::packed_b, is_by_k = streamed == Streamed::c;
  V sums[rows][vectors];
  HWY_UNROLL(8) for (int i = 0; i < rows; ++i) {
    HWY_UNROLL(4) for (int v = 0; v < vectors; ++v) {
      sums[i][v] = hn::Zero(d);
      if (is_of_b && t.start != nullptr) sums[i][v] = hn::LoadU(d, t.start + i * t.start_stride + v * width);
    }
  }
  constexpr int line = 16, interval = is_of_b ? StreamedKernels::burst_units : line, ahead = 8;  // values, units, units
  if constexpr (is_by_k) {
    HWY_UNROLL(8) for (int i = 0; i < rows; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < vectors * width; j += line) __builtin_prefetch(t.later_c + i * t.c_stride + j, 0, 2);
    }
  }
  LinesAhead lines;
  if constexpr (is_of_b) lines = *t.ahead;
  const float* a = t.a;
  float* b = t.b;
  const T* from = static_cast<const T*>(t.source);
  for (std::int64_t first = 0; first < t.depth; first += is_by_k ? t.depth : interval) {
    if constexpr (is_of_b) lines.burst();
    if constexpr (streamed == Streamed::a) {
      HWY_UNROLL(8)
      for (int i = 0; i < rows; ++i) __builtin_prefetch(a + (StreamedKernels::most_rows + i) * t.a_stride, 0, 2);
    }
    const std::int64_t last = is_by_k ? t.depth : std::min(t.depth, first + interval);
    HWY_UNROLL(4)
    for (std::int64_t l = first; l < last; ++l) {
      V b_row[vectors];
      if constexpr (streamed == Streamed::b) {
        constexpr int per_line = 64 / sizeof(T);
        HWY_UNROLL(4)
        for (int i = 0; i < vectors * width; i += per_line) __builtin_prefetch(from + ahead * t.source_stride + i);
        HWY_UNROLL(4) for (int v = 0; v < vectors; ++v) {
          b_row[v] = load(d, from + v * width);
          hn::StoreU(b_row[v], d, b + v * width);
        }
        from += t.source_stride;
      } else {
        if constexpr (streamed == Streamed::c) {
          HWY_UNROLL(4)
          for (int i = 0; i < vectors * width; i += line) __builtin_prefetch(b + ahead * vectors * width + i);
        }
        HWY_UNROLL(4) for (int v = 0; v < vectors; ++v) b_row[v] = hn::LoadU(d, b + v * width);
      }
      HWY_UNROLL(8) for (int i = 0; i < rows; ++i) {
        const auto a_number = hn::Set(d, is_by_k ? a[i] : a[i * t.a_stride]);
        HWY_UNROLL(4) for (int v = 0; v < vectors; ++v) sums[i][v] = hn::MulAdd(a_number, b_row[v], sums[i][v]);
      }
      a += is_by_k ? t.a_stride : 1;
      b += vectors * width;
    }
  }
  if constexpr (is_of_b) *t.ahead = lines;
  HWY_UNROLL(8) for (int i = 0; i < rows; ++i) {
    HWY_UNROLL(4) for (int v = 0; v < vectors; ++v) {
      float* c = t.c + i * t.c_stride + v * width;
      hn::StoreU(t.adds ? hn::Add(hn::LoadU(d, c), sums[i][v]) : sums[i][v], d, c);
    }
  }
}

using Multiply = void (*)(const StreamedTile&);
template <class T, int width, int vectors, Streamed streamed, int... rows_minus_one>
constexpr auto table_of(std::integer_sequence<int, rows_minus_one...>) {
  return std::array<Multiply, most_rows>{&multiply_streamed<T, width, rows_minus_one + 1, vectors, streamed>...};
}
using Rows = std::make_integer_sequence<int, most_rows>;
using Vectors = std::make_integer_sequence<int, most_vectors>;

template <class T, int width, int... vectors_minus_one>
constexpr std::array<void (*)(const PackArgs&), 5> packings(std::integer_sequence<int, vectors_minus_one...>) {
  return {nullptr, &pack_columns<T, (vectors_minus_one + 1) * width>...};
}

template <int width, int... vectors_minus_one>
constexpr auto tables_of_a(std::integer_sequence<int, vectors_minus_one...>) {
  return std::array{table_of<float, width, vectors_minus_one + 1, Streamed::a>(Rows())...};
}

template <class T>
void multiply(const StreamedTile& t) {
  static constexpr auto of_a = tables_of_a<lanes>(Vectors()), halves_of_a = tables_of_a<half_lanes>(Vectors());
  static constexpr auto of_b = table_of<T, lanes, most_vectors, Streamed::b>(Rows());
  static constexpr auto of_packed_b = table_of<float, lanes, most_vectors, Streamed::packed_b>(Rows());
  static constexpr auto of_c = table_of<float, lanes, most_vectors, Streamed::c>(Rows());
  const auto index = static_cast<std::size_t>(t.rows - 1), vectors = static_cast<std::size_t>(t.vectors - 1);
  switch (t.streamed) {
    case Streamed::a: return (t.is_half ? halves_of_a : of_a)[vectors][index](t);
    case Streamed::b: return of_b[index](t);
    case Streamed::packed_b: return of_packed_b[index](t);
    case Streamed::c: return of_c[index](t);
  }
}

template <class T>
constexpr StreamedKernels streamed = {.lanes = lanes,
                                      .half_lanes = half_lanes < lanes ? half_lanes : 0,
                                      .most_vectors = most_vectors,
                                      .reads_rows = std::is_same_v<T, float>,
                                      .pack_rows = pack_rows<T, most_vectors * lanes>,
                                      .pack_columns = packings<T, lanes>(Vectors()),
                                      .pack_half_columns = packings<T, half_lanes>(Vectors()),
                                      .multiply = multiply<T>};

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
