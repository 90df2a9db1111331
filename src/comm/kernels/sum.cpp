#include "comm/sum.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

// As in ops/cpu: the scalar baseline, AVX2 and AVX-512, and NEON.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/kernels/sum.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// T as stored, A in which sums are computed.
template <class T>
using SumType = std::conditional_t<sizeof(T) == 2, float, T>;
template <class A>
using Tag = hn::ScalableTag<A>;
template <class A>
using Vec = hn::Vec<Tag<A>>;

// --- one vector from the format as stored, and one or two into it ---

HWY_INLINE Vec<float> widened(Vec<std::uint32_t> bits, bfloat16) {
  return hn::BitCast(Tag<float>(), hn::ShiftLeft<16>(bits));
}

HWY_INLINE Vec<float> widened(Vec<std::uint32_t> bits, float16) {
  const Tag<float> d;
  const Tag<std::uint32_t> u;
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(u, 0x8000U))),
             magnitude = hn::And(bits, hn::Set(u, 0x7fffU));
  const auto shifted = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(u, 112U << 23U));  // normal values
  const auto largest = hn::Add(shifted, hn::Set(u, 112U << 23U));                       // infinities and NaN
  const auto subnormal = hn::Mul(hn::ConvertTo(d, hn::BitCast(Tag<std::int32_t>(), magnitude)), hn::Set(d, 0x1p-24F));
  const auto is_finite = hn::Lt(magnitude, hn::Set(u, 0x7c00U)), is_subnormal = hn::Lt(magnitude, hn::Set(u, 0x400U));
  const auto word =
      hn::IfThenElse(is_subnormal, hn::BitCast(u, subnormal), hn::IfThenElse(is_finite, shifted, largest));
  return hn::BitCast(d, hn::Or(word, sign));
}

// The result in the lower halves of the lanes; see bfloat16 and float16, whose constructors round identically.
HWY_INLINE Vec<std::uint32_t> rounded(Vec<float> x, bfloat16) {
  const Tag<std::uint32_t> u;
  const auto bits = hn::BitCast(u, x), upper = hn::ShiftRight<16>(bits);
  const auto nearest = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(u, 0x7fffU)), hn::And(upper, hn::Set(u, 1U))));
  return hn::IfThenElse(hn::RebindMask(u, hn::IsNaN(x)), hn::Or(upper, hn::Set(u, 0x40U)), nearest);
}

HWY_INLINE Vec<std::uint32_t> rounded(Vec<float> x, float16) {
  const Tag<float> d;
  const Tag<std::uint32_t> u;
  const auto bits = hn::BitCast(u, x), sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 0x8000U)),
             magnitude = hn::And(bits, hn::Set(u, 0x7fffffffU));
  const auto subnormal =
      hn::Sub(hn::BitCast(u, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5F))), hn::Set(u, 0x3f000000U));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(u, 1U));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(u, 0x38000000U - 0xfffU)), odd));
  const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(u, 0x38800000U)), subnormal, normal);
  const auto number = hn::IfThenElse(hn::Lt(magnitude, hn::Set(u, 0x477ff000U)), finite, hn::Set(u, 0x7c00U));
  return hn::Or(sign, hn::IfThenElse(hn::Gt(magnitude, hn::Set(u, 0x7f800000U)), hn::Set(u, 0x7e00U), number));
}

template <class T>
HWY_INLINE Vec<SumType<T>> load(const T* p) {
  if constexpr (sizeof(T) == 2) {
    const hn::Rebind<std::uint16_t, Tag<float>> d16;
    return widened(hn::PromoteTo(Tag<std::uint32_t>(), hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p))), T());
  } else {
    return hn::LoadU(Tag<T>(), p);
  }
}

// Aligned where streaming.
template <Stores stores, class D, class V, class T>
HWY_INLINE void store_bits(D d, V v, T* p) {
  if constexpr (stores == Stores::streaming)
    hn::Stream(v, d, p);
  else
    hn::StoreU(v, d, p);
}

template <Stores stores, class T>
HWY_INLINE void store_two(Vec<SumType<T>> v0, Vec<SumType<T>> v1, T* p) {
  if constexpr (sizeof(T) == 2) {
#if HWY_TARGET == HWY_SCALAR
    p[0].bits = static_cast<std::uint16_t>(hn::GetLane(rounded(v0, T())));
    p[1].bits = static_cast<std::uint16_t>(hn::GetLane(rounded(v1, T())));
#else
    const Tag<std::uint16_t> d16;
    const auto words = hn::ConcatEven(d16, hn::BitCast(d16, rounded(v1, T())), hn::BitCast(d16, rounded(v0, T())));
    store_bits<stores>(d16, words, reinterpret_cast<std::uint16_t*>(p));
#endif
  } else {
    store_bits<stores>(Tag<T>(), v0, p);
    store_bits<stores>(Tag<T>(), v1, p + hn::Lanes(Tag<T>()));
  }
}

template <ReduceOp op, class A>
HWY_INLINE Vec<A> combined(Vec<A> a, Vec<A> b) {
  if constexpr (op == ReduceOp::sum)
    return hn::Add(a, b);
  else if constexpr (std::is_floating_point_v<A>)
    return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Ge(a, b)), a, b);
  else
    return hn::Max(a, b);
}

// --- groups of four vectors ---

template <class T>
constexpr std::int64_t most_group_elements = 4 * HWY_MAX_BYTES / sizeof(SumType<T>);

template <class T>
struct Operands {
  std::span<const std::byte* const> in;
  std::span<std::byte* const> out;
  const ByteRange& range;
  [[nodiscard]] HWY_INLINE const T* input(std::size_t rank) const {
    return reinterpret_cast<const T*>(in[rank] + range.in);
  }
  [[nodiscard]] HWY_INLINE T* output(std::size_t rank) const { return reinterpret_cast<T*>(out[rank] + range.out); }
  [[nodiscard]] HWY_INLINE std::int64_t count() const { return range.num_bytes / static_cast<std::int64_t>(sizeof(T)); }
};

// Where a group of elements is found and left: as it is in the buffers, or through a staging area where less than a
// group is left.
template <class T, Stores stores>
struct Whole {
  HWY_INLINE const T* source(const T* p) const { return p; }
  template <class V>
  HWY_INLINE void store(V v0, V v1, V v2, V v3, T* p) const {
    const std::size_t lanes = hn::Lanes(Tag<SumType<T>>());
    store_two<stores>(v0, v1, p);
    store_two<stores>(v2, v3, p + 2 * lanes);
  }
};

template <class T>
struct Tail {
  std::int64_t count;
  T* staging;
  HWY_INLINE const T* source(const T* p) const {
    std::memcpy(staging, p, static_cast<std::size_t>(count) * sizeof(T));
    return staging;
  }
  template <class V>
  HWY_INLINE void store(V v0, V v1, V v2, V v3, T* p) const {
    T results[most_group_elements<T>];
    Whole<T, Stores::cached>().store(v0, v1, v2, v3, results);
    std::memcpy(p, results, static_cast<std::size_t>(count) * sizeof(T));
  }
};

template <class T, ReduceOp op, class Place>
HWY_INLINE void reduce_group(const Operands<T>& x, std::int64_t i, Place place) {
  const std::size_t lanes = hn::Lanes(Tag<SumType<T>>());
  const T* p = place.source(x.input(0) + i);
  auto v0 = load(p), v1 = load(p + lanes), v2 = load(p + 2 * lanes), v3 = load(p + 3 * lanes);
  for (std::size_t rank = 1; rank < x.in.size(); ++rank) {
    p = place.source(x.input(rank) + i);
    v0 = combined<op, SumType<T>>(v0, load(p));
    v1 = combined<op, SumType<T>>(v1, load(p + lanes));
    v2 = combined<op, SumType<T>>(v2, load(p + 2 * lanes));
    v3 = combined<op, SumType<T>>(v3, load(p + 3 * lanes));
  }
  for (std::size_t rank = 0; rank < x.out.size(); ++rank) place.store(v0, v1, v2, v3, x.output(rank) + i);
}

template <class T, ReduceOp op>
HWY_INLINE void reduce_tail(const Operands<T>& x, std::int64_t first, std::int64_t count) {
  T staging[most_group_elements<T>] = {};
  if (count > 0) reduce_group<T, op>(x, first, Tail<T>{count, staging});
}

template <class T, ReduceOp op, Stores stores>
void reduce_range(const Operands<T>& x, std::int64_t first, std::int64_t last) {
  const auto step = static_cast<std::int64_t>(4 * hn::Lanes(Tag<SumType<T>>()));
  std::int64_t i = first;
  for (; i + step <= last; i += step) reduce_group<T, op>(x, i, Whole<T, stores>());
  reduce_tail<T, op>(x, i, last - i);
}

// --- large results ---

constexpr std::int64_t line_bytes = 64;

inline std::int64_t bytes_to_line(const std::byte* p) {
  return static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(p) % line_bytes);
}

// Whether all outputs reach the next line after equally many bytes.
template <class T>
bool begin_alike(const Operands<T>& x) {
  for (std::size_t rank = 1; rank < x.out.size(); ++rank)
    if (bytes_to_line(x.out[rank]) != bytes_to_line(x.out[0])) return false;
  return !x.out.empty();
}

template <class T, ReduceOp op>
void reduce_all(const Operands<T>& x, Stores stores) {
  if (stores == Stores::cached || !begin_alike(x)) return reduce_range<T, op, Stores::cached>(x, 0, x.count());
  const std::int64_t head =
      std::min(x.count(), bytes_to_line(x.out[0] + x.range.out) / static_cast<std::int64_t>(sizeof(T)));
  reduce_range<T, op, Stores::cached>(x, 0, head);
  reduce_range<T, op, Stores::streaming>(x, head, x.count());
  hwy::FlushStream();
}

template <class T>
void reduce_type(const Summation& summation, const Operands<T>& x) {
  switch (summation.op) {
    case ReduceOp::sum: return reduce_all<T, ReduceOp::sum>(x, summation.stores);
    case ReduceOp::max: return reduce_all<T, ReduceOp::max>(x, summation.stores);
  }
}

void reduce_with_vectors(const Summation& summation, std::span<const std::byte* const> in,
                         std::span<std::byte* const> out, const ByteRange& range) {
  switch (summation.dtype) {
    case DType::float32: return reduce_type<float>(summation, {in, out, range});
    case DType::float64: return reduce_type<double>(summation, {in, out, range});
    case DType::bfloat16: return reduce_type<bfloat16>(summation, {in, out, range});
    case DType::float16: return reduce_type<float16>(summation, {in, out, range});
    case DType::int32: return reduce_type<std::int32_t>(summation, {in, out, range});
    case DType::int16: throw Failure("no reduction sums int16");
  }
}

void stream_copy(std::byte* out, const std::byte* in, std::int64_t num_bytes) {
  const auto copy_part = [&](std::int64_t first, std::int64_t last) {
    std::memcpy(out + first, in + first, static_cast<std::size_t>(last - first));
  };
  const Tag<std::uint8_t> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t head = std::min(num_bytes, bytes_to_line(out)),
                     end = head + (num_bytes - head) / line_bytes * line_bytes;
  copy_part(0, head);
  for (std::int64_t i = head; i < end; i += step)
    hn::Stream(hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(in + i)), d,
               reinterpret_cast<std::uint8_t*>(out + i));
  copy_part(end, num_bytes);
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(reduce_with_vectors);
HWY_EXPORT(stream_copy);

void reduce_in_rank_order(const Summation& summation, std::span<const std::byte* const> in,
                          std::span<std::byte* const> out, const ByteRange& range) {
  HWY_DYNAMIC_DISPATCH(reduce_with_vectors)(summation, in, out, range);
}

void copy_to_all(std::span<std::byte* const> out, const std::byte* in, const ByteRange& range, Stores stores) {
  constexpr std::int64_t block_bytes = 16 << 10;  // stays in the first cache from one output to the next
  for (std::int64_t i = 0; i < range.num_bytes; i += block_bytes) {
    const std::int64_t length = std::min(block_bytes, range.num_bytes - i);
    const std::byte* const source = in + range.in + i;
    for (std::byte* const p : out) {
      std::byte* const target = p + range.out + i;
      if (target == source) continue;
      if (stores == Stores::streaming)
        HWY_DYNAMIC_DISPATCH(stream_copy)(target, source, length);
      else
        std::memcpy(target, source, static_cast<std::size_t>(length));
    }
  }
}

}  // namespace echelon
#endif  // HWY_ONCE
