// A rank's one allocation, handed out by the memory plan. It also writes down what was really used, so that plan and
// use can be compared byte for byte.
#pragma once

#include "blueprint/blueprint.h"
#include "tensor/arena.h"

#include <array>
#include <map>

namespace echelon {

class RankMemory {
 public:
  explicit RankMemory(const RankBlueprint& blueprint, MemorySpace& space = host_memory())
      : blueprint_(blueprint), arena_(blueprint.arena_bytes(), space) {}

  /// The whole planned buffer as one tensor; the plan must hold exactly these bytes.
  [[nodiscard]] Tensor tensor(ProgramKind kind, BufferKey key, DType dtype, Sizes sizes);
  /// One tensor per bucket of a unit, of all or the owned part of it; `key` says role and action.
  [[nodiscard]] std::vector<Tensor> unit_buffers(ProgramKind kind, BufferKey key, const ShardedUnit& unit, DType dtype);
  [[nodiscard]] std::vector<Tensor> part_buffers(ProgramKind kind, BufferKey key, const ShardedUnit& unit, DType dtype);
  /// The planned buffer as a region to take tensors from; empty if the plan has none.
  [[nodiscard]] Stack region(ProgramKind kind, BufferKey key) const;
  /// Notes that `used_bytes` of a region were the most that was taken.
  void note_use(ProgramKind kind, BufferKey key, std::int64_t used_bytes);

  /// What was used of each buffer so far, to be compared with the plan.
  [[nodiscard]] const std::map<BufferKey, std::int64_t>& used_bytes(ProgramKind kind) const {
    return used_bytes_[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] const RankBlueprint& blueprint() const { return blueprint_; }
  [[nodiscard]] const Arena& arena() const { return arena_; }

 private:
  const RankBlueprint& blueprint_;
  Arena arena_;
  std::array<std::map<BufferKey, std::int64_t>, 2> used_bytes_;
};

}  // namespace echelon
