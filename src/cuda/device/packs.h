// Neighbouring values that a thread loads and stores together, 16 bytes at a time: the widest access there is, and the
// one with the fewest instructions for a byte. For .cu files alone.
#pragma once

#include "cuda/device/lanes.h"

#ifndef __CUDACC__
#include <stdexcept>
#endif

namespace echelon::cuda {

template <class T, int count>
struct Pack {
  T at[count];
};

/// Of T in 16 bytes.
template <class T>
constexpr int pack_size = static_cast<int>(16 / sizeof(T));

namespace detail {

template <int num_bytes>
struct Word;
template <>
struct Word<2> {
  using type = unsigned short;
};
template <>
struct Word<4> {
  using type = unsigned;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};

/// Copies a pack between registers and memory, in one access or in several of 16 bytes. The chip faults on an address
/// that is not a multiple of the access.
template <int num_bytes>
__device__ __forceinline__ void load_words(void* registers, const void* memory) {
#ifdef __CUDACC__
  using W = typename Word<(num_bytes < 16 ? num_bytes : 16)>::type;
#pragma unroll
  for (int i = 0; i < num_bytes / static_cast<int>(sizeof(W)); ++i) {
    const W word = static_cast<const W*>(memory)[i];
    memcpy(static_cast<W*>(registers) + i, &word, sizeof word);
  }
#else
  if (reinterpret_cast<std::uintptr_t>(memory) % (num_bytes < 16 ? num_bytes : 16) != 0)
    throw std::runtime_error("a misaligned load");
  emulated::note_access(num_bytes);
  std::memcpy(registers, memory, num_bytes);
#endif
}
template <int num_bytes>
__device__ __forceinline__ void store_words(void* memory, const void* registers) {
#ifdef __CUDACC__
  using W = typename Word<(num_bytes < 16 ? num_bytes : 16)>::type;
#pragma unroll
  for (int i = 0; i < num_bytes / static_cast<int>(sizeof(W)); ++i) {
    W word;
    memcpy(&word, static_cast<const W*>(registers) + i, sizeof word);
    static_cast<W*>(memory)[i] = word;
  }
#else
  if (reinterpret_cast<std::uintptr_t>(memory) % (num_bytes < 16 ? num_bytes : 16) != 0)
    throw std::runtime_error("a misaligned store");
  emulated::note_access(num_bytes);
  std::memcpy(memory, registers, num_bytes);
#endif
}

}  // namespace detail

/// `address` is a multiple of the pack's bytes, or of 16 if it has more.
template <int count, class T>
__device__ __forceinline__ Pack<T, count> load_pack(const T* address) {
  Pack<T, count> pack;
  if constexpr (sizeof pack == sizeof(T))
    pack.at[0] = *address;
  else
    detail::load_words<static_cast<int>(sizeof pack)>(pack.at, address);
  return pack;
}
template <class T, int count>
__device__ __forceinline__ void store_pack(T* address, const Pack<T, count>& pack) {
  if constexpr (sizeof pack == sizeof(T))
    *address = pack.at[0];
  else
    detail::store_words<static_cast<int>(sizeof pack)>(address, pack.at);
}

/// The first `present` values, and zeros: what is left at the end of a tensor.
template <int count, class T>
__device__ __forceinline__ Pack<T, count> load_pack(const T* address, std::int64_t present) {
  if (present >= count) return load_pack<count>(address);
  Pack<T, count> pack;
#pragma unroll
  for (int i = 0; i < count; ++i) pack.at[i] = i < present ? address[i] : narrow<T>(Wide<T>(0));
  return pack;
}
template <class T, int count>
__device__ __forceinline__ void store_pack(T* address, const Pack<T, count>& pack, std::int64_t present) {
  if (present >= count) return store_pack(address, pack);
#pragma unroll
  for (int i = 0; i < count; ++i)
    if (i < present) address[i] = pack.at[i];
}

/// A pack that is kept for later as it lay in memory. (Of a Pack that waits in registers the compiler gives each number
/// one of its own, also to a bfloat16.)
template <class T, int count>
struct PackedWords {
  typename detail::Word<static_cast<int>(sizeof(T) * count)>::type word = {};
};
template <int count, class T>
__device__ __forceinline__ PackedWords<T, count> load_words(const T* address) {
  PackedWords<T, count> words;
  detail::load_words<static_cast<int>(sizeof words)>(&words.word, address);
  return words;
}
template <class T, int count>
__device__ __forceinline__ void store_words(T* address, const PackedWords<T, count>& words) {
  detail::store_words<static_cast<int>(sizeof words)>(address, &words.word);
}
template <class T, int count>
__device__ __forceinline__ Pack<T, count> unpack(const PackedWords<T, count>& words) {
  Pack<T, count> pack;
  memcpy(static_cast<void*>(pack.at), &words.word, sizeof words);
  return pack;
}
template <class T, int count>
__device__ __forceinline__ PackedWords<T, count> pack_words(const Pack<T, count>& pack) {
  PackedWords<T, count> words;
  memcpy(&words.word, static_cast<const void*>(pack.at), sizeof words);
  return words;
}
/// Makes the compiler recompute what was derived from the values, instead of keeping it in more registers than the
/// words take.
template <class T, int count>
__device__ __forceinline__ void forget_what_became_of([[maybe_unused]] PackedWords<T, count>& words) {
#ifdef __CUDACC__
  if constexpr (sizeof words == sizeof(uint4))
    asm volatile("" : "+r"(words.word.x), "+r"(words.word.y), "+r"(words.word.z), "+r"(words.word.w));
#endif
}

template <class T, int count>
__device__ __forceinline__ Pack<Wide<T>, count> widen(const Pack<T, count>& x) {
  Pack<Wide<T>, count> wide;
#pragma unroll
  for (int i = 0; i < count; ++i) wide.at[i] = widen(x.at[i]);
  return wide;
}
namespace detail {
__device__ __forceinline__ __nv_bfloat162 pair_of(float x, float y, __nv_bfloat16) {
  return __floats2bfloat162_rn(x, y);
}
__device__ __forceinline__ __half2 pair_of(float x, float y, __half) { return __floats2half2_rn(x, y); }
}  // namespace detail

template <class To, class From, int count>
__device__ __forceinline__ Pack<To, count> narrow(const Pack<From, count>& x) {
  Pack<To, count> result;
  if constexpr (sizeof(To) == 2 && count % 2 == 0) {
#pragma unroll
    for (int i = 0; i < count; i += 2) {  // two of them are one instruction
      const auto pair = detail::pair_of(static_cast<float>(x.at[i]), static_cast<float>(x.at[i + 1]), To());
      result.at[i] = pair.x;
      result.at[i + 1] = pair.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i) result.at[i] = narrow<To>(x.at[i]);
  }
  return result;
}

}  // namespace echelon::cuda
