// The oracle: every operation as the plain loop that its formula says, for the other backends to be compared with. Slow
// on purpose.
#pragma once

#include "ops/ops.h"

#include <memory>

namespace echelon {

/// Computes at once, in float32, float64, bfloat16 or float16 (summing in float32). Holds no state, so any number of
/// threads may share one.
class ReferenceOps : public Ops {
 public:
  void perform(const Operation& operation) override;
  void upload(Tensor out, const void* host) override;
  void download(void* host, Tensor x) override;
  void publish() override {}

 private:
  // One overload for each operation, defined in the file of its family in this folder.
#define ECHELON_COMPUTE(name, Args) void compute(const Args& args);
  ECHELON_OPERATIONS(ECHELON_COMPUTE)
#undef ECHELON_COMPUTE
};

[[nodiscard]] std::unique_ptr<Ops> make_reference_ops();

}  // namespace echelon
