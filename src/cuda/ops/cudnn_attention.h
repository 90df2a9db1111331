// cuDNN's fused attention, where the library was built with cuDNN's headers and the machine has cuDNN: on the newest
// chips it is ahead of kernels that are written in terms of mma.sync, as ours are.
#pragma once

#include "cuda/device/status.h"
#include "cuda/device/workspace.h"
#include "ops/operations/attention.h"

#include <memory>
#include <string>

namespace echelon::cuda {

/// What became of a call.
struct CudnnAnswer {
  std::int64_t num_sequences = 0;        // of one launch; 0: nothing was done
  const std::string* refusal = nullptr;  // then why, as a clause; lives as long as the CudnnAttention
};

class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;

  /// Refused if cuDNN has no plan for these arguments, or none that gets by with the workspace, or the scratch if that
  /// is larger. A shape's first call builds its plan. Arguments are checked. delta is not written.
  [[nodiscard]] virtual CudnnAnswer attention(const AttentionArgs& args, cudaStream_t stream) = 0;
  [[nodiscard]] virtual CudnnAnswer attention_backward(const AttentionBackwardArgs& args, cudaStream_t stream) = 0;

  /// "cuDNN 9.13.0".
  [[nodiscard]] virtual std::string name() const = 0;
};

struct CudnnOptions {
  const Workspace& workspace;
  int num_multiprocessors = 1;
  bool deterministic = true;
  bool refuses_slow_plans = true;  // of so few sequences at once that our kernels are expected to be faster
};

/// On the current device. Null where there is none; `reason` then says why, as a clause.
[[nodiscard]] std::unique_ptr<CudnnAttention> find_cudnn_attention(const CudnnOptions& options, std::string& reason);

}  // namespace echelon::cuda
