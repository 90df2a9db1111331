#include "fuzz/heap_bound.h"

#include <malloc.h>

#include <new>

namespace echelon::fuzz {

HeapCount& heap_count() {
  static constinit HeapCount count;
  return count;
}

namespace {

void* counted(void* memory) {
  if (memory != nullptr) heap_count().add(malloc_usable_size(memory));
  return memory;
}

void* allocated(std::size_t size) {
  void* memory = counted(std::malloc(std::max<std::size_t>(size, 1)));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* aligned(std::size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  void* memory = counted(std::aligned_alloc(unit, (std::max<std::size_t>(size, 1) + unit - 1) / unit * unit));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory) {
  if (memory != nullptr) heap_count().remove(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace
}  // namespace echelon::fuzz

using namespace echelon;

// All of them, since a sanitizer has its own of those that are missing.
void* operator new(std::size_t size) { return fuzz::allocated(size); }
void* operator new[](std::size_t size) { return fuzz::allocated(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return fuzz::counted(std::malloc(size)); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return fuzz::counted(std::malloc(size)); }
void* operator new(std::size_t size, std::align_val_t alignment) { return fuzz::aligned(size, alignment); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return fuzz::aligned(size, alignment); }
void operator delete(void* memory) noexcept { fuzz::release(memory); }
void operator delete[](void* memory) noexcept { fuzz::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { fuzz::release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { fuzz::release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { fuzz::release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { fuzz::release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { fuzz::release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { fuzz::release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { fuzz::release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { fuzz::release(memory); }
