// The small products of attention: operands packed in scratch that a core's caches hold, blocks of 4 rows by as many
// vectors as there are registers for. Included once per instruction set (Highway).
//
// A Format says how values are packed and multiplied. Plain: as they are. Pairs: two bfloat16 in 32 bits, which one
// instruction multiplies and adds. MatrixTiles: many such pairs.

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_PRODUCTS_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_PRODUCTS_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_PRODUCTS_INL_H_
#endif
// clang-format on

#include "ops/cpu/attention/matrix_tiles.h"
#include "ops/cpu/lanes-inl.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

constexpr std::int64_t block_rows = 4;
constexpr std::int64_t summands_per_step = 16;

/// The next multiple.
[[nodiscard]] constexpr std::int64_t rounded_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

template <class A>
HWY_INLINE std::int64_t num_lanes() {
  return static_cast<std::int64_t>(hn::Lanes(Tag<A>()));
}

template <class A>
struct Plain {
  using Number = A;  // what an operand is packed in
  using Sum = A;
  using Packing = Plain;  // that of softmax
  static constexpr bool is_paired = false, has_matrices = false;
  static constexpr std::int64_t per_number = 1;  // summands that one Number holds

  static HWY_INLINE Vec<A> load(const A* b) { return hn::Load(Tag<A>(), b); }
  static HWY_INLINE Vec<A> broadcast(const A* a) { return hn::Set(Tag<A>(), *a); }
  static HWY_INLINE Vec<A> multiply_add(Vec<A> a, Vec<A> b, Vec<A> sum) { return hn::MulAdd(a, b, sum); }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
/// Even summands in the lower half of a Number, odd ones in the upper. The instruction is not part of the instruction
/// set that this is compiled for, so users of Pairs know that the CPU has it.
struct Pairs {
  using Number = std::uint32_t;
  using Sum = float;
  using Packing = Pairs;
  static constexpr bool is_paired = true, has_matrices = false;
  static constexpr std::int64_t per_number = 2;

  static HWY_INLINE Vec<Number> load(const Number* b) { return hn::Load(Tag<Number>(), b); }
  static HWY_INLINE Vec<Number> broadcast(const Number* a) { return hn::Set(Tag<Number>(), *a); }
  static HWY_INLINE Vec<float> multiply_add(Vec<Number> a, Vec<Number> b, Vec<float> sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "v"(a.raw));
    return sum;
  }
  /// Rounded to nearest even. (A NaN out of arithmetic stays one: its last bits are not all set.)
  static HWY_INLINE Vec<Number> pair(Vec<float> even, Vec<float> odd) {
    const Tag<Number> d;
    const auto half = hn::Set(d, 0x8000U);
    const auto upper = hn::And(hn::Add(hn::BitCast(d, odd), half), hn::Set(d, 0xffff0000U));
    return hn::Or(upper, hn::ShiftRight<16>(hn::Add(hn::BitCast(d, even), half)));
  }
};

/// Pairs, in matrix registers (matrix_tiles.h). Users know that the CPU has them.
struct MatrixTiles : Pairs {
  static constexpr bool has_matrices = true;
};
#endif

/// c[rows, columns] (+)= a b. a[i, p] is at a + i a_row + p a_depth; b and c are rows of whole vectors.
template <class Format>
struct Product {
  const typename Format::Number* a = nullptr;
  std::int64_t a_row = 0, a_depth = 0;
  const typename Format::Number* b = nullptr;
  std::int64_t b_row = 0;
  typename Format::Sum* c = nullptr;
  std::int64_t c_row = 0;
  std::int64_t num_rows = 0, num_columns = 0;  // rows: a multiple of block_rows
  bool accumulates = false;
};

/// Of a block of rows, what has to be computed: columns from first_column on, and summands from first to last, counted
/// in packed units. The others are zero.
struct Extent {
  std::int64_t first_column = 0, first = 0, last = 0;
};

template <int vectors, class Format>
HWY_INLINE void multiply_block(const Product<Format>& product, std::int64_t row, std::int64_t column,
                               const Extent& extent, RowsAhead& ahead) {
  using Number = typename Format::Number;
  using Sum = typename Format::Sum;
  const Tag<Sum> d;
  const std::int64_t lanes = num_lanes<Sum>();
  const std::int64_t a_row = product.a_row, b_row = product.b_row, c_row = product.c_row;
  const Number* HWY_RESTRICT a = product.a + row * a_row + extent.first * product.a_depth;
  const Number* HWY_RESTRICT b = product.b + extent.first * b_row + column;
  Sum* HWY_RESTRICT c = product.c + row * c_row + column;
  Vec<Sum> sums[block_rows][vectors];
  for (int r = 0; r < block_rows; ++r)
    for (int v = 0; v < vectors; ++v)
      sums[r][v] = product.accumulates ? hn::Load(d, c + r * c_row + v * lanes) : hn::Zero(d);
  for (std::int64_t first = extent.first; first < extent.last; first += summands_per_step) {
    ahead.step();
    for (std::int64_t p = first; p < std::min(first + summands_per_step, extent.last); ++p) {
      Vec<Number> b_p[vectors];
      for (int v = 0; v < vectors; ++v) b_p[v] = Format::load(b + v * lanes);
      for (int r = 0; r < block_rows; ++r) {
        const auto a_rp = Format::broadcast(a + r * a_row);
        for (int v = 0; v < vectors; ++v) sums[r][v] = Format::multiply_add(a_rp, b_p[v], sums[r][v]);
      }
      a += product.a_depth;
      b += b_row;
    }
  }
  for (int r = 0; r < block_rows; ++r)
    for (int v = 0; v < vectors; ++v) hn::Store(sums[r][v], d, c + r * c_row + v * lanes);
}

/// extent_of(row): of the block_rows rows from `row` on. A step of `ahead` for every summands_per_step of each block.
template <class Format, class ExtentOf>
HWY_NOINLINE void multiply(const Product<Format>& product, RowsAhead& ahead, ExtentOf&& extent_of) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  constexpr int most_vectors = 4;  // of 32 registers: 16 sums hide the latency of two units, and 8 loads feed them
#else
  constexpr int most_vectors = 3;  // of 16 registers: 12 sums
#endif
  const std::int64_t lanes = num_lanes<typename Format::Sum>(), panel = most_vectors * lanes;
  for (std::int64_t first = 0; first < product.num_columns; first += panel) {  // of b, one panel is in use for all rows
    const std::int64_t last = std::min(first + panel, product.num_columns);
    for (std::int64_t row = 0; row < product.num_rows; row += block_rows) {
      const Extent extent = extent_of(row);
      const std::int64_t column = std::max(first, extent.first_column / lanes * lanes);
      switch ((last - column) / lanes) {
        case 4:
          if constexpr (most_vectors >= 4) multiply_block<4>(product, row, column, extent, ahead);
          break;
        case 3: multiply_block<3>(product, row, column, extent, ahead); break;
        case 2: multiply_block<2>(product, row, column, extent, ahead); break;
        case 1: multiply_block<1>(product, row, column, extent, ahead); break;
        default: break;  // nothing of this panel
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
