// Matrix products by cuBLASLt, with the algorithm that its heuristics like best for a shape, asked once per shape.
#pragma once

#include "cuda/device/device.h"
#include "cuda/device/workspace.h"
#include "ops/ops.h"

#include <cublasLt.h>

#include <map>
#include <tuple>

namespace echelon::cuda {

class Products {
 public:
  /// Both must outlive it. Throws Failure if the library does not start.
  Products(Device& device, const Workspace& workspace);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  void enqueue(const MatmulArgs& args);

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, DType, DType, bool, bool, bool>;  // m, n, k, formats, transposes, accumulates
  struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
  };
  [[nodiscard]] const Plan& plan_of(const MatmulArgs& args);

  Device& device_;
  const Workspace& workspace_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Plan> plans_;
};

}  // namespace echelon::cuda
