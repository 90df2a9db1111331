// A backend that computes layout types in place of values: it applies the type rule of every operation and touches no
// data, so it runs on memory that may not exist.
#pragma once

#include "ops/ops.h"
#include "types/rank_axes.h"
#include "types/typed_memory.h"

namespace echelon {

class TypedOps final : public Ops {
 public:
  /// Both must outlive it.
  TypedOps(TypedMemory& memory, const RankAxes& axes) : memory_(memory), axes_(axes) {}

  /// Throws Failure with a sentence that names the layer and the operation where a rule does not hold.
  void perform(const Operation& operation) override;
  void upload(Tensor out, const void* host) override;
  void upload_like(Tensor out, const void* host, Tensor like) override;
  void download(void* host, Tensor x) override;
  [[nodiscard]] bool computes_values() const override { return false; }
  void publish() override {}

 private:
  TypedMemory& memory_;
  const RankAxes& axes_;
};

}  // namespace echelon
