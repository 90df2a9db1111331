// The backend for NVIDIA GPUs: cuBLASLt for matmuls, flash-style kernels for attention, fused kernels for the rest.
// Operations are enqueued on the rank's compute stream and run in that order; upload() returns when the host's memory
// may be used again, download() when the values have arrived.
//
// Formats: float32, float64, bfloat16 and float16; arithmetic is in the accumulate_dtype, products of the 16-bit
// formats in tensor cores that add in float32. In deterministic mode two runs give the same bits: no sum is left to the
// order of atomics.
#pragma once

#include "cuda/device/device.h"
#include "cuda/device/workspace.h"
#include "cuda/ops/host_staging.h"
#include "ops/ops.h"

#include <compare>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace echelon::cuda {

class CudnnAttention;
class JoinedOperations;
class PairedOperations;
template <class First>
struct Pair;
class Products;
class PendingProduct;

/// training.attention: auto, cudnn, own.
enum class CudnnUse : std::uint8_t { where_possible, always, never };

struct OpsOptions {
  bool deterministic = true;  // otherwise the fastest algorithm of a matmul is found by timing a few
  bool allows_tf32 = false;   // products of float32 may round their operands to TensorFloat-32
  bool needs_float8 = false;  // float8 matmuls will be used
  CudnnUse cudnn = CudnnUse::where_possible;
};

/// Of an operation: legend in ops/ops.h.
struct AttentionShape {
  bool is_backward;
  std::int64_t B, Tq, Tk, H, K, C;
  DType dtype;
  bool has_ranges;
  MaskShape of_ranges;
  auto operator<=>(const AttentionShape&) const = default;
};

/// How attention of a shape was computed last.
struct AttentionKernelsUsed {
  std::int64_t num_at_once = 0;                // sequences in one launch of cuDNN's; 0: by `ours`
  std::string_view ours = {};                  // our kernels
  const std::string* cudnn_refusal = nullptr;  // why not cuDNN; null: it was not asked
};

/// One per rank, used by the rank's own thread.
class CudaOps final : public Ops {
 public:
  /// `device` must outlive it. Throws Failure if cuBLASLt does not start, and Error if the device lacks what is needed.
  CudaOps(Device& device, const OpsOptions& options);
  ~CudaOps() override;

  void perform(const Operation& operation) override;
  void upload(Tensor out, const void* host) override;
  void download(void* host, Tensor x) override;
  /// Everything is on the compute stream then, which is what communication waits for.
  void publish() override;
  void finish() override;

  /// The number of biases, bias gradients and sums that were fused into matmuls.
  [[nodiscard]] std::int64_t num_fused() const;
  /// Which kernels may form attention, and why: "attention by cuDNN 9.13.0 where it has a plan, else by our kernels,
  /// ...".
  [[nodiscard]] std::string attention_kernels() const;
  /// Which kernels computed it last, and why not cuDNN: a line for each shape so far; empty: none.
  [[nodiscard]] std::string attention_choices() const;

 private:
  // One overload for each operation, defined in the file of its family in this folder.
#define ECHELON_COMPUTE(name, Args) void compute(const Args& args);
  ECHELON_OPERATIONS(ECHELON_COMPUTE)
#undef ECHELON_COMPUTE
  // Several in one launch: joined_operations.h.
  void compute_joined(const std::vector<FillArgs>& held);
  void compute_joined(const std::vector<RopeArgs>& held);
  void compute_joined(const std::vector<SumOfSquaresArgs>& held);
  void compute_joined(const std::vector<AdamWArgs>& held);
  // Two in one launch: paired_operations.h.
  void compute_pair(const Pair<LayerNormBackwardArgs>& pair);
  void compute_pair(const Pair<RmsNormBackwardArgs>& pair);
  void compute_pair(const Pair<RowExpArgs>& pair);

  /// dbias[i] += row i of sums, of the same dtype.
  void add_sums(const std::vector<Tensor>& dbias, const Tensor& sums);

  /// Enqueues what is delayed (pending_product.h, joined_operations.h, paired_operations.h).
  void flush();
  /// The stream for kernels and other work, after every earlier operation, including what is delayed.
  [[nodiscard]] cudaStream_t stream(std::int64_t num_pieces = 1);
  [[nodiscard]] ComputeLane lane() { return {stream(), device_.num_multiprocessors(), workspace_}; }
  /// False if cuDNN was not asked, or refuses. Throws Error if it refuses what `training.attention = cudnn` asks for.
  template <class Args>
  [[nodiscard]] bool attention_by_cudnn(const Args& args, cudaStream_t lane, AttentionKernelsUsed& used);

  Device& device_;
  OpsOptions options_;
  Workspace workspace_;
  HostStaging staging_;
  std::unique_ptr<Products> products_;
  std::unique_ptr<PendingProduct> pending_;
  std::unique_ptr<JoinedOperations> joined_;
  std::unique_ptr<PairedOperations> paired_;
  std::string no_cudnn_;  // why, where cudnn_ is null
  std::unique_ptr<CudnnAttention> cudnn_;
  std::map<AttentionShape, AttentionKernelsUsed> used_;
};

}  // namespace echelon::cuda
