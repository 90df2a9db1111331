// The backend for processors: OpenBLAS and kernels of our own for products, Highway vectors for the rest, flash-style
// tiles for attention. Operations run at once, on the calling thread.
//
// Formats: float32, float64, and bfloat16 and float16 as storage formats: they are widened to float32 block by block,
// and all arithmetic is float32. Results do not depend on num_threads: work is divided over rows or columns, sums
// never.
#pragma once

#include "ops/ops.h"

#include <array>
#include <map>
#include <memory>
#include <string>

namespace echelon {

struct CpuOptions {
  int num_threads = 1;  // inside one operation
};

/// One per rank. Holds no tensor; scratch (at most some MiB per thread) belongs to the calling thread.
class CpuOps : public Ops {
 public:
  /// Throws Error if OpenBLAS cannot be loaded, or num_threads is below 1.
  explicit CpuOps(const CpuOptions& options);

  /// How often a product of (m, n, k) was handed to BLAS, counted where it is called; what the trace says of matmul
  /// must equal it.
  [[nodiscard]] const std::map<std::array<std::int64_t, 3>, std::int64_t>& matmul_counts() const {
    return matmul_counts_;
  }

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
  [[nodiscard]] std::byte* host_address(const Tensor& x) const override { return x.data; }
  void publish() override {}

 private:
  void matmul_float8(const MatmulArgs& args);
  /// matmul without what belongs to the whole call: the checks and the count.
  void multiply(const MatmulArgs& args);

  int num_threads_;
  std::map<std::array<std::int64_t, 3>, std::int64_t> matmul_counts_;
};

[[nodiscard]] std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options = {});

/// For messages at start: the library, its version and the kernels it chose, e.g. "OpenBLAS 0.3.21 SkylakeX, openmp",
/// and what multiplies which format.
[[nodiscard]] std::string blas_description();

}  // namespace echelon
