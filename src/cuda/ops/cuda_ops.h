// The backend for NVIDIA GPUs: cuBLASLt for products, flash-style kernels for attention, fused kernels for the rest.
// Operations are enqueued on the rank's compute stream and run in that order; upload() returns when the host's memory
// may be used again, download() when the numbers are there.
//
// Formats: float32, float64, bfloat16 and float16; arithmetic is in the accumulate_dtype, products of the formats of 16
// bits in tensor cores that add in float32. In deterministic mode two runs give the same bits: no sum is left to the
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

namespace echelon::cuda {

class CudnnAttention;
class Products;
class PendingProduct;

struct OpsOptions {
  bool deterministic = true;  // otherwise the fastest algorithm of a product is found by timing a few
  bool allows_tf32 = false;   // products of float32 may round their operands to TensorFloat-32
  bool needs_float8 = false;  // products in float8 will be asked for
};

/// Of an operation: legend in ops/ops.h.
struct AttentionShape {
  bool is_backward;
  std::int64_t B, Tq, Tk, H, K, C;
  DType dtype;
  auto operator<=>(const AttentionShape&) const = default;
};

/// One per rank, used by the rank's own thread.
class CudaOps final : public Ops {
 public:
  /// `device` must outlive it. Throws Failure if cuBLASLt does not start, and Error if the device lacks what is needed.
  CudaOps(Device& device, const OpsOptions& options);
  ~CudaOps() override;

  void matmul(const MatmulArgs& args) override;
  void add_bias(Tensor y_ND, Tensor bias_D) override;
  void bias_backward(Tensor dy_ND, Tensor dbias_D) override;
  void add(Tensor out, Tensor a, Tensor b) override;
  void copy(Tensor out, Tensor x) override;
  void fill(Tensor out, double value) override;
  void scale(Tensor x, double factor) override;
  void embedding(const EmbeddingArgs& args) override;
  void embedding_backward(const EmbeddingBackwardArgs& args) override;
  void add_positions(const PositionsArgs& args) override;
  void positions_backward(const PositionsBackwardArgs& args) override;
  void layer_norm(const LayerNormArgs& args) override;
  void layer_norm_backward_input(const LayerNormBackwardInputArgs& args) override;
  void layer_norm_backward_weight(const LayerNormBackwardWeightArgs& args) override;
  void layer_norm_backward(const LayerNormBackwardArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void rms_norm_backward_input(const RmsNormBackwardInputArgs& args) override;
  void rms_norm_backward_weight(const RmsNormBackwardWeightArgs& args) override;
  void rms_norm_backward(const RmsNormBackwardArgs& args) override;
  void rope(const RopeArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void attention_backward(const AttentionBackwardArgs& args) override;
  void merge_attention(const MergeAttentionArgs& args) override;
  void gelu(const GeluArgs& args) override;
  void gelu_backward(const GeluBackwardArgs& args) override;
  void swiglu(const SwigluArgs& args) override;
  void swiglu_backward(const SwigluBackwardArgs& args) override;
  void row_exp(const RowExpArgs& args) override;
  void rescale_sums(const RescaleSumsArgs& args) override;
  void cross_entropy(const CrossEntropyArgs& args) override;
  void cross_entropy_backward(const CrossEntropyBackwardArgs& args) override;
  void sum_of_squares(Tensor x, Tensor sum) override;
  void gradient_factor(const GradientFactorArgs& args) override;
  void adamw(const AdamWArgs& args) override;
  void expert_slots(const ExpertSlotsArgs& args) override;
  void permute_to_experts(const PermuteToExpertsArgs& args) override;
  void combine_experts(const CombineExpertsArgs& args) override;
  void combine_experts_backward(const CombineExpertsBackwardArgs& args) override;
  void grouped_matmul(const GroupedMatmulArgs& args) override;
  void grouped_matmul_backward_weight(const GroupedMatmulBackwardWeightArgs& args) override;
  void upload(Tensor out, const void* host) override;
  void download(void* host, Tensor x) override;
  /// Everything is on the compute stream then, which is what communication waits for.
  void publish() override;
  void finish() override;

  /// Biases and gradients of biases that products did on their way.
  [[nodiscard]] std::int64_t num_fused() const;
  /// Which kernels may form attention, and why: "attention by cuDNN 9.13.0 where it has a plan, else by our kernels,
  /// ...".
  [[nodiscard]] std::string attention_kernels() const;
  /// Which formed it last, a line for each shape that was asked for; empty: none was.
  [[nodiscard]] std::string attention_choices() const;

 private:
  /// For kernels, and whatever else is enqueued: after every operation before, also the product that was held back
  /// until now (pending_product.h).
  [[nodiscard]] cudaStream_t stream(std::int64_t num_pieces = 1);
  [[nodiscard]] ComputeLane lane() { return {stream(), device_.num_multiprocessors(), workspace_}; }
  /// True if dbias += column sums of dy came with the product that was held back.
  [[nodiscard]] bool add_fused_column_sums(Tensor dy_ND, Tensor dbias_D);

  Device& device_;
  OpsOptions options_;
  Workspace workspace_;
  HostStaging staging_;
  std::unique_ptr<Products> products_;
  std::unique_ptr<PendingProduct> pending_;
  std::string no_cudnn_;  // why, where cudnn_ is null
  std::unique_ptr<CudnnAttention> cudnn_;
  std::map<AttentionShape, std::string> formed_by_;
};

}  // namespace echelon::cuda
