// A backend that computes types in place of numbers: every operation is held against its rule, and nothing is touched.
// It runs on memory that may not be there.
#pragma once

#include "ops/operation.h"
#include "types/rank_axes.h"
#include "types/typed_memory.h"

namespace echelon {

class TypedOps final : public UniformOps {
 public:
  /// Both must outlive it.
  TypedOps(TypedMemory& memory, const RankAxes& axes) : memory_(memory), axes_(axes) {}

  /// Throws Failure with a sentence that names the layer and the operation where a rule does not hold.
  void perform(const Operation& operation) override;
  [[nodiscard]] bool has_numbers() const override { return false; }
  void publish() override {}

 private:
  TypedMemory& memory_;
  const RankAxes& axes_;
};

}  // namespace echelon
