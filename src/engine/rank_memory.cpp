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
  note_use(kind, key, {.num_bytes = num_bytes});
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

// FNV-1a.
std::uint64_t RankMemory::plan() const {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto add = [&](std::int64_t value) {
    for (int i = 0; i < 8; ++i) hash = (hash ^ (static_cast<std::uint64_t>(value) >> 8 * i & 0xff)) * 0x100000001b3ULL;
  };
  for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation})
    for (const PlannedBuffer& buffer : blueprint_.memory(kind).buffers()) {
      for (const std::int64_t value :
           {static_cast<int>(buffer.key.role), buffer.key.index, buffer.key.stage, buffer.key.bucket})
        add(value);
      add(buffer.offset);
      add(buffer.num_bytes);
    }
  return hash;
}

void RankMemory::note_use(ProgramKind kind, BufferKey key, const RegionUse& use) {
  RegionUse& most = use_[static_cast<std::size_t>(kind)][key];
  if (use.num_bytes > most.num_bytes) most = use;
}

}  // namespace echelon
