#include "tensor/arena.h"

#include "base/error.h"

#include <sys/mman.h>

namespace echelon {
namespace {
constexpr std::int64_t huge_page_bytes = std::int64_t{1} << 21;
}

Arena::Arena(std::int64_t num_bytes, Pages pages) : num_bytes_(num_bytes) {
  if (num_bytes == 0) return;
  const int access = pages == Pages::in_place ? PROT_READ | PROT_WRITE : PROT_NONE;
  void* address = mmap(nullptr, static_cast<std::size_t>(num_bytes), access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw Failure(fmt::format("the system has no {} bytes of memory for the arena that the plan asks for", num_bytes));
  base_ = static_cast<std::byte*>(address);
  if (pages == Pages::never) return;
  // Advice only: a kernel without transparent huge pages ignores it.
  if (num_bytes >= 2 * huge_page_bytes) madvise(address, static_cast<std::size_t>(num_bytes), MADV_HUGEPAGE);
  populate();
}

// All pages now, by the thread that will use them: no step waits for the system to zero memory, and memory that is not there is found before the run.
void Arena::populate() {
  if (madvise(base_, static_cast<std::size_t>(num_bytes_), MADV_POPULATE_WRITE) == 0) return;
  constexpr std::int64_t page_bytes = 4096;  // a kernel before 5.14
  for (std::int64_t offset = 0; offset < num_bytes_; offset += page_bytes) *const_cast<volatile std::byte*>(base_ + offset) = std::byte{0};
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, static_cast<std::size_t>(num_bytes_));
}

Stack Arena::region(std::int64_t offset, std::int64_t num_bytes) const {
  if (offset < 0 || offset + num_bytes > num_bytes_)
    throw Failure(fmt::format("region [{}, {}) lies outside an arena of {} bytes", offset, offset + num_bytes, num_bytes_));
  return {base_ + offset, num_bytes};
}

Tensor Arena::tensor(std::int64_t offset, DType dtype, Sizes sizes) const {
  return region(offset, aligned(sizes.num_elements() * size_of(dtype))).take(dtype, sizes);
}

}  // namespace echelon
