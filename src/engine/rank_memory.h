// A rank's one allocation, divided by the memory plan. It also records what was used, so that plan and use can be
// compared byte for byte.
#pragma once

#include "blueprint/blueprint.h"
#include "tensor/arena.h"

#include <array>
#include <map>

namespace echelon {

class RankMemory {
 public:
  explicit RankMemory(const RankBlueprint& blueprint, MemorySpace& space = host_memory(),
                      MemorySpace& space_of_host = host_memory())
      : blueprint_(blueprint),
        arena_(blueprint.arena_bytes(), space),
        host_(blueprint.host_memory().num_bytes(), space_of_host) {}

  /// The whole planned buffer as one tensor; the plan must hold exactly these bytes.
  [[nodiscard]] Tensor tensor(ProgramKind kind, BufferKey key, DType dtype, Sizes sizes);
  /// The planned buffer as a region to take tensors from; empty if the plan has none.
  [[nodiscard]] Stack region(ProgramKind kind, BufferKey key) const;
  /// Notes the most that was taken of a region.
  void note_use(ProgramKind kind, BufferKey key, const RegionUse& use);

  /// What was used of each buffer so far, to be compared with the plan. Rows are known of stashes.
  [[nodiscard]] const std::map<BufferKey, RegionUse>& use(ProgramKind kind) const {
    return use_[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] const RankBlueprint& blueprint() const { return blueprint_; }
  [[nodiscard]] const Arena& arena() const { return arena_; }
  /// Equal on ranks whose buffers have equal offsets in training and evaluation.
  [[nodiscard]] std::uint64_t plan() const;

 private:
  const RankBlueprint& blueprint_;
  Arena arena_;
  Arena host_;  // of snapshots, where the arena is not in host memory
  std::array<std::map<BufferKey, RegionUse>, num_program_kinds> use_;
};

/// The buffers of one program.
class ProgramBuffers final : public Buffers {
 public:
  ProgramBuffers(RankMemory& memory, ProgramKind kind) : memory_(memory), kind_(kind) {}
  [[nodiscard]] Tensor tensor(BufferKey key, DType dtype, const Sizes& sizes) override {
    return memory_.tensor(kind_, key, dtype, sizes);
  }
  [[nodiscard]] Stack region(BufferKey key) override { return memory_.region(kind_, key); }
  void note_use(BufferKey key, const RegionUse& use) override { memory_.note_use(kind_, key, use); }

 private:
  RankMemory& memory_;
  ProgramKind kind_;
};

}  // namespace echelon
