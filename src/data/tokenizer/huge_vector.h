// Vectors that are read at random places: on huge pages, whose addresses stay in a core's TLB.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

namespace echelon {

template <class T>
struct HugePages {
  using value_type = T;
  static constexpr std::size_t page_bytes = std::size_t{1} << 21;
  HugePages() = default;
  template <class U>
  explicit HugePages(const HugePages<U>& /*other*/) {}

  // Aligned to a huge page if it fills one, so that the kernel can use some.
  static std::align_val_t alignment(std::size_t count) {
    return std::align_val_t{count * sizeof(T) >= page_bytes ? page_bytes : alignof(T)};
  }
  T* allocate(std::size_t count) {
    void* memory = ::operator new(count * sizeof(T), alignment(count));
    if (count * sizeof(T) >= page_bytes) madvise(memory, count * sizeof(T), MADV_HUGEPAGE);  // advice only
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) { ::operator delete(memory, alignment(count)); }
  bool operator==(const HugePages& /*other*/) const { return true; }
};

template <class T>
using HugeVector = std::vector<T, HugePages<T>>;

}  // namespace echelon
