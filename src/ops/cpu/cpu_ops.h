// The backend for processors: OpenBLAS for products, Highway vectors for the rest, flash-style tiles for attention. Operations run at once, on the calling
// thread.
//
// Formats: float32, float64, and bfloat16 as a storage format: it is widened to float32 block by block, and all arithmetic is float32. Results do not depend
// on num_threads: work is divided over rows or columns, sums never.
#pragma once

#include "ops/reference/reference_ops.h"

#include <array>
#include <map>
#include <memory>
#include <string>

namespace echelon {

struct CpuOptions {
  int num_threads = 1;  // inside one operation
};

/// One per rank. Holds no tensor; scratch (at most some MiB per thread) belongs to the calling thread.
class CpuOps : public ReferenceOps {  // which computes what has no faster code here yet
 public:
  /// Throws Error if OpenBLAS cannot be loaded.
  explicit CpuOps(const CpuOptions& options);

  /// How often a product of (m, n, k) was handed to BLAS, counted where it is called; what the trace says of matmul must equal it.
  [[nodiscard]] const std::map<std::array<std::int64_t, 3>, std::int64_t>& matmul_counts() const { return matmul_counts_; }

  void matmul(const MatmulArgs& args) override;
  void publish() override {}

 private:
  int num_threads_;
  std::map<std::array<std::int64_t, 3>, std::int64_t> matmul_counts_;
};

[[nodiscard]] std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options = {});

/// For messages at start: the library, its version and the kernels it chose, e.g. "OpenBLAS 0.3.21 SkylakeX, openmp".
[[nodiscard]] std::string blas_description();

}  // namespace echelon
