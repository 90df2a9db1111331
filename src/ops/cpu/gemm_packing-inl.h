// Packs factors into panels of float32 for every instruction set. Included once per instruction set (Highway).

// clang-format off
#if defined(ECHELON_OPS_CPU_GEMM_PACKING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECHELON_OPS_CPU_GEMM_PACKING_INL_H_
#undef ECHELON_OPS_CPU_GEMM_PACKING_INL_H_
#else
#define ECHELON_OPS_CPU_GEMM_PACKING_INL_H_
#endif
// clang-format on

#include "ops/cpu/gemm_kernels.h"
#include "ops/cpu/lanes-inl.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// k is strided. Whole vectors are read as long as another row of k follows, so that they end within the factor.
/// Fetches the strip after this one.
template <class T, int width>
void pack_rows(const PackArgs& p) {
  const Tag<float> d;
  constexpr int lanes = HWY_LANES(float), line = 16;  // line: values that are fetched together
  for (std::int64_t l = 0; l < p.k; ++l) {
    const T* from = static_cast<const T*>(p.from) + l * p.stride;
    float* into = p.into + l * width;
    for (int i = 0; i < width; i += line) __builtin_prefetch(from + strip * p.stride + i, 0, 2);
    if (p.count == width || (l + 1 < p.k && p.stride >= width)) {
      for (int i = 0; i < width; i += lanes) hn::StoreU(load(d, from + i), d, into + i);
    } else {
      for (int i = 0; i < width; ++i) into[i] = i < p.count ? to<float>(from[i]) : 0;
    }
  }
}

template <class T>
HWY_INLINE void transpose_4x4(const T* from, std::int64_t stride, float* into, std::int64_t into_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) into[j * into_stride + i] = to<float>(from[i * stride + j]);
#else
  const hn::FixedTag<float, 4> d;
  const auto r0 = load(d, from), r1 = load(d, from + stride), r2 = load(d, from + 2 * stride),
             r3 = load(d, from + 3 * stride);
  const auto low02 = hn::InterleaveLower(d, r0, r2), low13 = hn::InterleaveLower(d, r1, r3);
  const auto high02 = hn::InterleaveUpper(d, r0, r2), high13 = hn::InterleaveUpper(d, r1, r3);
  hn::StoreU(hn::InterleaveLower(d, low02, low13), d, into);
  hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, into + into_stride);
  hn::StoreU(hn::InterleaveLower(d, high02, high13), d, into + 2 * into_stride);
  hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, into + 3 * into_stride);
#endif
}

/// k is contiguous: transposes, in blocks of 16 along k, which are a cache line of each row. Fetches what comes eight
/// lines later.
template <class T, int width>
void pack_columns(const PackArgs& p) {
  const T* from = static_cast<const T*>(p.from);
  constexpr std::int64_t block = 16;
  for (std::int64_t first = 0; first < p.k; first += block) {
    const std::int64_t last = std::min(p.k, first + block);
    for (std::int64_t i = 0; i < width; i += 4) {
      std::int64_t l = first;
      for (std::int64_t j = i; j < i + 4; ++j) __builtin_prefetch(from + j * p.stride + first + 128, 0, 2);
      if (i + 4 <= p.count)
        for (; l + 4 <= last; l += 4) transpose_4x4(from + i * p.stride + l, p.stride, p.into + l * width + i, width);
      for (; l < last; ++l)
        for (std::int64_t j = i; j < i + 4; ++j)
          p.into[l * width + j] = j < p.count ? to<float>(from[j * p.stride + l]) : 0;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#endif  // per target
