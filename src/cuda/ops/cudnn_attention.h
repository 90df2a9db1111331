// cuDNN's fused attention, where the library was built with cuDNN's headers and the machine has cuDNN: on the newest
// chips it is ahead of kernels that are written in terms of mma.sync, as ours are.
#pragma once

#include "cuda/device/status.h"
#include "cuda/device/workspace.h"
#include "ops/operations/attention.h"

#include <memory>
#include <string>

namespace echelon::cuda {

class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;

  /// How many sequences went at once. 0 if cuDNN has no plan for these arguments, or none that gets by with the
  /// workspace, or the scratch if that is larger; then nothing is done. A shape's first call builds its plan. Arguments
  /// are checked. delta is not written.
  [[nodiscard]] virtual std::int64_t attention(const AttentionArgs& args, cudaStream_t stream) = 0;
  [[nodiscard]] virtual std::int64_t attention_backward(const AttentionBackwardArgs& args, cudaStream_t stream) = 0;

  /// "cuDNN 9.13.0".
  [[nodiscard]] virtual std::string name() const = 0;
};

/// On the current device. Null where there is none; `reason` then says why, as a clause.
[[nodiscard]] std::unique_ptr<CudnnAttention> find_cudnn_attention(const Workspace& workspace, bool deterministic,
                                                                   std::string& reason);

}  // namespace echelon::cuda
