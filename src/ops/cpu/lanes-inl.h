// Vectors of numbers of any storage format, computed with in the format its sums are computed in. Included once per
// instruction set (Highway).
//
// A kernel is a function of (lanes, i): `lanes` loads and stores from i on, either a whole vector or what is left at
// the end of a row.

// clang-format off
#if defined(ECHELON_OPS_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_LANES_INL_H_
#undef ECHELON_OPS_CPU_LANES_INL_H_
#else
#define ECHELON_OPS_CPU_LANES_INL_H_
#endif
// clang-format on

#include "hwy/highway.h"
#include "ops/cpu/exponential-inl.h"
#include "ops/visit.h"

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

// --- whole numbers of 16 bits, in the words of a vector of float32 ---

HWY_INLINE hn::Vec<Tag<std::int32_t>> load_words(const std::int16_t* p) {
  const Tag<std::int32_t> d;
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::int16_t, Tag<std::int32_t>>(), p));
}
HWY_INLINE void store_words(hn::Vec<Tag<std::int32_t>> v, std::int16_t* p) {
  const hn::Rebind<std::int16_t, Tag<std::int32_t>> d;
  hn::StoreU(hn::DemoteTo(d, v), d, p);
}

// --- one vector, from any format into the vector's and back ---

#undef ECHELON_CONVERTS_FLOAT16
#define ECHELON_CONVERTS_FLOAT16 (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)

template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* p) {
  using A = hn::TFromD<D>;
  if constexpr (std::is_same_v<T, A>) {
    return hn::LoadU(d, p);
  } else if constexpr (std::is_same_v<T, float>) {  // into float64
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), p));
  } else if constexpr (std::is_same_v<T, bfloat16> && std::is_same_v<A, float>) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<std::uint32_t, D> d32;
    const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
    return hn::BitCast(d, hn::ShiftLeft<16>(bits));
#if ECHELON_CONVERTS_FLOAT16
  } else if constexpr (std::is_same_v<T, float16> && std::is_same_v<A, float>) {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), reinterpret_cast<const hwy::float16_t*>(p)));
#endif
  } else if constexpr (is_half<T> && std::is_same_v<A, double>) {
    return hn::PromoteTo(d, load(hn::Rebind<float, D>(), p));
  } else {  // float64 into float32, which is rare, and float16 where no instruction widens it
    HWY_ALIGN A lanes[HWY_MAX_BYTES / sizeof(A)];
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = to<A>(p[i]);
    return hn::Load(d, lanes);
  }
}

template <class D, class V, class T>
HWY_INLINE void store(D d, V v, T* p) {
  using A = hn::TFromD<D>;
  if constexpr (std::is_same_v<T, A>) {
    hn::StoreU(v, d, p);
  } else if constexpr (std::is_same_v<T, float>) {  // of float64
    const hn::Rebind<float, D> d32;
    hn::StoreU(hn::DemoteTo(d32, v), d32, p);
  } else if constexpr (std::is_same_v<T, bfloat16> && std::is_same_v<A, float>) {  // to nearest even; a NaN stays one
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<std::uint32_t, D> d32;
    const hn::Rebind<std::int32_t, D> s32;
    const auto bits = hn::BitCast(d32, v);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(upper, hn::Set(d32, 1U));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d32, 0x7fffU)), odd));
    const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
    const auto result = hn::IfThenElse(is_nan, hn::Or(upper, hn::Set(d32, 0x40U)), rounded);
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(s32, result)), d16, reinterpret_cast<std::uint16_t*>(p));
#if ECHELON_CONVERTS_FLOAT16
  } else if constexpr (std::is_same_v<T, float16> && std::is_same_v<A, float>) {
    const hn::Rebind<hwy::float16_t, D> d16;
    hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
#endif
  } else {
    HWY_ALIGN A lanes[HWY_MAX_BYTES / sizeof(A)];
    hn::Store(v, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) p[i] = to<T>(lanes[i]);
  }
}

/// A whole vector of A.
template <class A>
struct Whole {
  template <class T>
  HWY_INLINE Vec<A> load(const T* p) const {
    return HWY_NAMESPACE::load(Tag<A>(), p);
  }
  template <class T>
  HWY_INLINE void store(Vec<A> v, T* p) const {
    HWY_NAMESPACE::store(Tag<A>(), v, p);
  }
  HWY_INLINE hn::Vec<Tag<std::int32_t>> load_words(const std::int16_t* p) const { return HWY_NAMESPACE::load_words(p); }
  HWY_INLINE void store_words(hn::Vec<Tag<std::int32_t>> v, std::int16_t* p) const { HWY_NAMESPACE::store_words(v, p); }
  /// v where there are values, `other` beyond them.
  HWY_INLINE Vec<A> valid_or(Vec<A> v, Vec<A>) const { return v; }
};

/// The first `count` lanes of a vector; the others load zero and are not stored.
template <class A>
struct Part {
  std::size_t count;

  template <class T>
  HWY_INLINE Vec<A> load(const T* p) const {
    T lanes[HWY_MAX_BYTES / sizeof(A)] = {};
    std::memcpy(lanes, p, count * sizeof(T));
    return HWY_NAMESPACE::load(Tag<A>(), lanes);
  }
  template <class T>
  HWY_INLINE void store(Vec<A> v, T* p) const {
    T lanes[HWY_MAX_BYTES / sizeof(A)];
    HWY_NAMESPACE::store(Tag<A>(), v, lanes);
    std::memcpy(p, lanes, count * sizeof(T));
  }
  HWY_INLINE hn::Vec<Tag<std::int32_t>> load_words(const std::int16_t* p) const {
    std::int16_t lanes[HWY_MAX_BYTES / sizeof(A)] = {};
    std::memcpy(lanes, p, count * sizeof(std::int16_t));
    return HWY_NAMESPACE::load_words(lanes);
  }
  HWY_INLINE void store_words(hn::Vec<Tag<std::int32_t>> v, std::int16_t* p) const {
    std::int16_t lanes[HWY_MAX_BYTES / sizeof(A)];
    HWY_NAMESPACE::store_words(v, lanes);
    std::memcpy(p, lanes, count * sizeof(std::int16_t));
  }
  HWY_INLINE Vec<A> valid_or(Vec<A> v, Vec<A> other) const {
    return hn::IfThenElse(hn::FirstN(Tag<A>(), count), v, other);
  }
};

/// kernel(lanes, i) for vectors of A that cover [first, last).
template <class A, class Kernel>
HWY_INLINE void for_lanes(std::int64_t first, std::int64_t last, Kernel&& kernel) {
  const auto step = static_cast<std::int64_t>(hn::Lanes(Tag<A>()));
  std::int64_t i = first;
  for (; i + step <= last; i += step) kernel(Whole<A>(), i);
  if (i < last) kernel(Part<A>{static_cast<std::size_t>(last - i)}, i);
}

/// Rows [count, columns] of sums, `stride` apart, of as many blocks.
template <class A>
struct BlockSums {
  const A* sums = nullptr;
  std::int64_t count = 0, columns = 0, stride = 0;
};

/// out += the sum over the blocks, in their order.
template <class A, class G>
HWY_INLINE void add_block_sums(const BlockSums<A>& blocks, G* out) {
  for_lanes<A>(0, blocks.columns, [=](auto lanes, std::int64_t i) HWY_ATTR {
    auto total = hn::Zero(Tag<A>());
    for (std::int64_t block = 0; block < blocks.count; ++block)
      total = hn::Add(total, lanes.load(blocks.sums + block * blocks.stride + i));
    lanes.store(hn::Add(lanes.load(out + i), total), out + i);
  });
}

template <class A>
HWY_INLINE A sum_of_lanes(Vec<A> v) {
  return hn::GetLane(hn::SumOfLanes(Tag<A>(), v));
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
