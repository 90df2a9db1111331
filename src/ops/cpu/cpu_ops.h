// The CPU backend: OpenBLAS and our own kernels for matmuls, Highway vectors for the rest, flash-style tiles for
// attention. Operations run at once, on the calling thread.
//
// Formats: float32, float64, and bfloat16 and float16 as storage formats: they are widened to float32 block by block,
// and sums are float32; some CPUs multiply bfloat16 itself (product_choice.h). Results do not depend on num_threads:
// work is divided over rows or columns, sums never.
#pragma once

#include "ops/cpu/product_choice.h"
#include "ops/ops.h"

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace echelon {

class Blas;
struct GemmKernels;

struct CpuOptions {
  int num_threads = 1;                         // inside one operation
  std::optional<ProductChoice> products = {};  // none: choose_products({})
};

struct AttentionPairs {
  std::int64_t forward = 0, backward = 0;
};

/// One per rank. Holds no tensor; scratch (at most some MiB per thread) belongs to the calling thread.
class CpuOps : public Ops {
 public:
  /// Throws Error if OpenBLAS cannot be loaded, or num_threads is below 1.
  explicit CpuOps(const CpuOptions& options);

  /// How often a matmul of (m, n, k) was passed to BLAS; the trace of matmul must equal it.
  [[nodiscard]] const std::map<std::array<std::int64_t, 3>, std::int64_t>& matmul_counts() const {
    return matmul_counts_;
  }

  /// Pairs (query, key) that attention and its gradients computed, over all heads.
  [[nodiscard]] const AttentionPairs& attention_pairs() const { return attention_pairs_; }

  /// Of the matmuls of experts, on the rows that they had.
  [[nodiscard]] std::int64_t expert_flops() const { return expert_flops_; }

  void perform(const Operation& operation) override;
  void upload(Tensor out, const void* host) override;
  void download(void* host, Tensor x) override;
  [[nodiscard]] std::byte* host_address(const Tensor& x) const override { return x.data; }
  void publish() override {}

 private:
  CpuOps(int num_threads, const ProductChoice& products);

  // One overload for each operation, defined in the file of its family in this folder.
#define ECHELON_COMPUTE(name, Args) void compute(const Args& args);
  ECHELON_OPERATIONS(ECHELON_COMPUTE)
#undef ECHELON_COMPUTE

  void multiply_float8(const MatmulArgs& args);
  /// matmul without what belongs to the whole call: the checks and the count.
  void multiply(const MatmulArgs& args);
  /// multiply of each.
  void multiply_all(const std::vector<MatmulArgs>& all);
  /// nullptr: by BLAS.
  [[nodiscard]] const GemmKernels* kernels_of(DType dtype) const;

  int num_threads_;
  const Blas& blas_;
  const GemmKernels* float32_kernels_;  // nullptr: blas_
  const GemmKernels& bfloat16_kernels_;
  ProductKernels bfloat16_products_;  // those of attention, too
  std::map<std::array<std::int64_t, 3>, std::int64_t> matmul_counts_;
  AttentionPairs attention_pairs_;
  std::int64_t expert_flops_ = 0;
};

[[nodiscard]] std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options = {});

}  // namespace echelon
