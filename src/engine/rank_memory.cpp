#include "engine/rank_memory.h"

#include "base/error.h"

#include <algorithm>

namespace echelon {

Tensor RankMemory::tensor(ProgramKind kind, BufferKey key, DType dtype, Sizes sizes) {
  const std::int64_t num_bytes = aligned(sizes.num_elements() * size_of(dtype));
  if (num_bytes == 0) return {nullptr, dtype, sizes};
  const PlannedBuffer& buffer = blueprint_.memory(kind).at(key);
  if (num_bytes != buffer.num_bytes)
    throw Failure(fmt::format("the memory plan gave {} bytes to a buffer of {}", buffer.num_bytes, num_bytes));
  note_use(kind, key, num_bytes);
  return arena_.tensor(buffer.offset, dtype, sizes);
}

Stack RankMemory::region(ProgramKind kind, BufferKey key) const {
  if (blueprint_.host_memory().contains(key)) {
    const PlannedBuffer& buffer = blueprint_.host_memory().at(key);
    return host_.region(buffer.offset, buffer.num_bytes);
  }
  if (!blueprint_.memory(kind).contains(key)) return {nullptr, 0};
  const PlannedBuffer& buffer = blueprint_.memory(kind).at(key);
  return arena_.region(buffer.offset, buffer.num_bytes);
}

void RankMemory::note_use(ProgramKind kind, BufferKey key, std::int64_t used_bytes) {
  std::int64_t& most = used_bytes_[static_cast<std::size_t>(kind)][key];
  most = std::max(most, used_bytes);
}

}  // namespace echelon
