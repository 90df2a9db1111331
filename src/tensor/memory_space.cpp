#include "tensor/memory_space.h"

#include "base/error.h"

#include <sys/mman.h>

#include <algorithm>

namespace echelon {
namespace {

constexpr std::int64_t huge_page_bytes = std::int64_t{1} << 21;

std::byte* map(std::int64_t num_bytes, int access) {
  void* address = mmap(nullptr, static_cast<std::size_t>(num_bytes), access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    throw Failure(fmt::format("the system has no {} bytes of memory for the arena that the plan asks for", num_bytes));
  return static_cast<std::byte*>(address);
}

/// By the thread that will use them. A part at a time: meanwhile the process can map no memory for another rank.
void populate(std::byte* base, std::int64_t num_bytes) {
  constexpr std::int64_t part_bytes = 16 * huge_page_bytes, page_bytes = 4096;
  const auto populate_part = [&](std::int64_t first) {
    const std::int64_t bytes = std::min(part_bytes, num_bytes - first);
    return madvise(base + first, static_cast<std::size_t>(bytes), MADV_POPULATE_WRITE) == 0;
  };
  std::int64_t populated = 0;
  while (populated < num_bytes && populate_part(populated)) populated += part_bytes;
  if (populated >= num_bytes) return;
  // A kernel before 5.14.
  for (std::int64_t offset = 0; offset < num_bytes; offset += page_bytes)
    *const_cast<volatile std::byte*>(base + offset) = std::byte{0};
}

class HostMemory final : public MemorySpace {
 public:
  std::byte* allocate(std::int64_t num_bytes) override {
    std::byte* const base = map(num_bytes, PROT_READ | PROT_WRITE);
    // Advice only: a kernel without transparent huge pages ignores it.
    if (num_bytes >= 2 * huge_page_bytes) madvise(base, static_cast<std::size_t>(num_bytes), MADV_HUGEPAGE);
    populate(base, num_bytes);
    return base;
  }
  void release(std::byte* address, std::int64_t num_bytes) override {
    munmap(address, static_cast<std::size_t>(num_bytes));
  }
};

class BareAddresses final : public MemorySpace {
 public:
  std::byte* allocate(std::int64_t num_bytes) override { return map(num_bytes, PROT_NONE); }
  void release(std::byte* address, std::int64_t num_bytes) override {
    munmap(address, static_cast<std::size_t>(num_bytes));
  }
};

}  // namespace

// Both are stateless: one of each is enough.
MemorySpace& host_memory() {
  static HostMemory space;
  return space;
}
MemorySpace& bare_addresses() {
  static BareAddresses space;
  return space;
}

}  // namespace echelon
