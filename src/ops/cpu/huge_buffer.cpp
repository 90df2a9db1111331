#include "ops/cpu/huge_buffer.h"

#include <sys/mman.h>

#include <array>
#include <cstdlib>
#include <new>

namespace echelon {

HugeBuffer& HugeBuffer::of_this_thread(Purpose purpose) {
  static thread_local std::array<HugeBuffer, num_purposes> buffers;
  return buffers.at(purpose);
}

float* HugeBuffer::floats(std::int64_t count) {
  constexpr std::int64_t room = 64, page = 2 << 20;
  if (count + room > size_) {
    memory_.reset();
    const std::int64_t bytes = ((count + room) * static_cast<std::int64_t>(sizeof(float)) + page - 1) / page * page;
    void* memory = std::aligned_alloc(page, static_cast<std::size_t>(bytes));
    if (memory == nullptr) throw std::bad_alloc();
    madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // advice only
    memory_.reset(static_cast<float*>(memory));
    size_ = bytes / static_cast<std::int64_t>(sizeof(float));
  }
  return memory_.get();
}

void HugeBuffer::Free::operator()(void* memory) const { std::free(memory); }

}  // namespace echelon
