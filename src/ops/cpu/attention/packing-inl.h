// How tiles of attention are packed for its matmuls. Included once per instruction set (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_ATTENTION_PACKING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_ATTENTION_PACKING_INL_H_
#undef ECHELON_OPS_CPU_ATTENTION_PACKING_INL_H_
#else
#define ECHELON_OPS_CPU_ATTENTION_PACKING_INL_H_
#endif
// clang-format on

#include "ops/cpu/attention/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

constexpr std::int64_t tile_queries = 64;
constexpr std::int64_t tile_keys = 64;

/// Some of the vectors [C] of one head: `count` of them, `stride` values apart.
template <class T>
struct HeadRows {
  T* first = nullptr;
  std::int64_t count = 0, stride = 0, C = 0;

  /// At most so many of those from `from` on.
  [[nodiscard]] HeadRows part(std::int64_t from, std::int64_t most) const {
    return {first + from * stride, std::clamp<std::int64_t>(count - from, 0, most), stride, C};
  }
};

/// The columns of a row of sums: whole vectors, or matrices.
template <class Format>
HWY_INLINE std::int64_t padded(std::int64_t C) {
  return rounded_up(C, Format::has_matrices ? matrix_side : num_lanes<typename Format::Sum>());
}
/// The Numbers of a packed row.
template <class Format>
HWY_INLINE std::int64_t packed_width(std::int64_t C) {
  return padded<Format>(C) / Format::per_number;
}

/// packed[num_rows, packed width] = x, zero in padding.
template <class Format, class T>
HWY_INLINE void pack(const HeadRows<const T>& x, std::int64_t num_rows, typename Format::Number* packed) {
  using Number = typename Format::Number;
  using Element = std::conditional_t<Format::is_paired, T, typename Format::Sum>;  // pairs are neighbours already
  const std::int64_t width = padded<Format>(x.C), row_numbers = packed_width<Format>(x.C),
                     lanes = num_lanes<typename Format::Sum>();
  auto* into = reinterpret_cast<Element*>(packed);
  for (std::int64_t row = 0; row < x.count; ++row, into += width) {
    const T* from = x.first + row * x.stride;
    if (std::is_same_v<Element, T> && x.C == width && row_numbers % lanes == 0) {
      const auto* numbers = reinterpret_cast<const Number*>(from);
      const Tag<Number> d;
      for (std::int64_t i = 0; i < row_numbers; i += lanes)
        hn::Store(hn::LoadU(d, numbers + i), d, reinterpret_cast<Number*>(into) + i);
      continue;
    }
    std::fill(into + x.C, into + width, Element{});
    if constexpr (std::is_same_v<Element, T>)
      std::memcpy(into, from, static_cast<std::size_t>(x.C) * sizeof(T));
    else
      for_lanes<Element>(0, x.C,
                         [=](auto part, std::int64_t i) HWY_ATTR { part.store(part.load(from + i), into + i); });
  }
  std::fill(into, into + (num_rows - x.count) * width, Element{});
}

/// Rows as matmuls need them: packed, or in place if that is the same.
template <class Number>
struct NumberRows {
  const Number* first = nullptr;
  std::int64_t stride = 0;
};

/// A tile of x, through `packed` where that is needed.
template <class Format, class T>
HWY_INLINE NumberRows<typename Format::Number> rows_of_tile(const HeadRows<const T>& x,
                                                            typename Format::Number* packed) {
  using Number = typename Format::Number;
  const bool is_packed =
      sizeof(T) * Format::per_number == sizeof(Number) && x.count == tile_queries && x.C == padded<Format>(x.C);
  if (is_packed && x.stride % Format::per_number == 0)
    return {reinterpret_cast<const Number*>(x.first), x.stride / Format::per_number};
  pack<Format>(x, tile_queries, packed);
  return {packed, packed_width<Format>(x.C)};
}

#if HWY_TARGET == HWY_SCALAR
template <class Format>
HWY_INLINE void transpose(const NumberRows<typename Format::Number>& x, std::int64_t C, typename Format::Sum factor,
                          typename Format::Number* transposed) {
  for (std::int64_t c = 0; c < C; ++c)
    for (std::int64_t row = 0; row < tile_queries; ++row)
      transposed[c * tile_queries + row] = factor * x.first[row * x.stride + c];
}
#else
/// transposed[packed width, tile_queries] = factor x[tile_queries, packed width]; pairs keep their factor for later.
/// Blocks of 16 bytes squared are transposed in registers.
template <class Format>
HWY_INLINE void transpose(const NumberRows<typename Format::Number>& x, std::int64_t C, typename Format::Sum factor,
                          typename Format::Number* transposed) {
  using Number = typename Format::Number;
  constexpr std::int64_t size = 16 / sizeof(Number);
  const hn::FixedTag<hwy::MakeUnsigned<Number>, size> d;
  const hn::FixedTag<std::uint64_t, 2> d64;
  const hn::FixedTag<Number, size> numbers;
  const std::int64_t width = packed_width<Format>(C);
  const auto put = [=](auto column, std::int64_t c, std::int64_t row) HWY_ATTR {
    auto values = hn::BitCast(numbers, column);
    if constexpr (!Format::is_paired) values = hn::Mul(values, hn::Set(numbers, factor));
    hn::Store(values, numbers, transposed + c * tile_queries + row);
  };
  for (std::int64_t c = 0; c < width; c += size)
    for (std::int64_t row = 0; row < tile_queries; row += size) {
      const auto load_row = [=](std::int64_t r) HWY_ATTR {
        return hn::BitCast(d, hn::LoadU(numbers, x.first + (row + r) * x.stride + c));
      };
      const auto r0 = load_row(0), r1 = load_row(1);
      const auto lower01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1)),
                 upper01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
      if constexpr (size == 2) {
        put(lower01, c, row);
        put(upper01, c + 1, row);
      } else {
        const auto r2 = load_row(2), r3 = load_row(3);
        const auto lower23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3)),
                   upper23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
        put(hn::InterleaveLower(d64, lower01, lower23), c, row);
        put(hn::InterleaveUpper(d64, lower01, lower23), c + 1, row);
        put(hn::InterleaveLower(d64, upper01, upper23), c + 2, row);
        put(hn::InterleaveUpper(d64, upper01, upper23), c + 3, row);
      }
    }
}
#endif

/// paired[num_rows / 2, padded C] of packed[num_rows, packed width], both of Pairs: rows `distance` apart in one
/// Number, so that sums run over rows.
template <class Format>
HWY_INLINE void pair_rows(const typename Format::Number* packed, std::int64_t num_rows, std::int64_t C,
                          std::int64_t distance, typename Format::Number* paired) {
  const Tag<typename Format::Number> d;
  const hn::Rebind<std::uint16_t, decltype(d)> halves;
  const std::int64_t width = padded<Format>(C), lanes = num_lanes<typename Format::Sum>();
  const auto* rows = reinterpret_cast<const std::uint16_t*>(packed);
  for (std::int64_t first = 0; first < num_rows; first += 2 * distance)
    for (std::int64_t row = first; row < first + distance; ++row, paired += width)
      for (std::int64_t c = 0; c < width; c += lanes) {
        const auto even = hn::PromoteTo(d, hn::LoadU(halves, rows + row * width + c));
        const auto odd = hn::PromoteTo(d, hn::LoadU(halves, rows + (row + distance) * width + c));
        hn::Store(hn::Or(even, hn::ShiftLeft<16>(odd)), d, paired + c);
      }
}

/// A tile of keys packed by pack(), of Pairs, for sums over keys.
template <class Format>
HWY_INLINE void pack_over_keys(const typename Format::Number* packed, std::int64_t C, typename Format::Number* into) {
  if constexpr (Format::has_matrices)
    transpose_pairs(packed, padded<Format>(C), into);
  else
    pair_rows<Format>(packed, tile_keys, C, 1, into);
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
