#include "fuzz/heap_bound.h"

#include <sanitizer/allocator_interface.h>

namespace echelon::fuzz {
namespace {

HeapCount count;

void allocated(const volatile void* memory, std::size_t) {
  count.add(__sanitizer_get_allocated_size(const_cast<const void*>(memory)));
}
void released(const volatile void* memory) {
  if (memory != nullptr) count.remove(__sanitizer_get_allocated_size(const_cast<const void*>(memory)));
}

}  // namespace

HeapCount& heap_count() {
  static const int hooks = __sanitizer_install_malloc_and_free_hooks(allocated, released);
  if (hooks == 0) std::abort();
  return count;
}

}  // namespace echelon::fuzz
