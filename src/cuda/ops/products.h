// Matmuls by cuBLASLt. Its heuristics are asked once per kind of matmul (product_plan.h); where two runs need
// not give the same bits, the best few that they name are timed once, and the fastest is taken.
#pragma once

#include "cuda/device/device.h"
#include "cuda/device/workspace.h"
#include "cuda/ops/product_plan.h"

#include <map>
#include <optional>

namespace echelon::cuda {

struct ProductOptions {
  Float32Products float32_products = Float32Products::exact;
  // The fastest of several algorithms on this device, instead of the one that the heuristics like best.
  bool is_timed = false;
};

class Stopwatch;

class Products {
 public:
  /// All that is given must outlive it. Throws Failure if the library does not start.
  Products(Device& device, const Workspace& workspace, const ProductOptions& options);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Throws Failure if the library has no algorithm for it.
  void enqueue(const MatmulArgs& args);
  /// With an epilogue; false, and nothing is enqueued, if the library has no algorithm for that.
  [[nodiscard]] bool enqueue(const MatmulArgs& args, Epilogue epilogue, Tensor vector);

  /// A matmul with a nonempty sum and result, which the library computes.
  [[nodiscard]] static bool is_one(const MatmulArgs& args);

  /// The end of the workspace, which matmuls leave alone: for `count` values that an epilogue writes. Null if they are
  /// too many.
  [[nodiscard]] std::byte* room_for(std::int64_t count, DType dtype) const;

 private:
  /// Null: there is no algorithm.
  [[nodiscard]] const ProductPlan* plan_of(const ProductKey& key, const ProductPlan::Where& where);
  [[nodiscard]] cublasLtMatmulAlgo_t fastest(ProductPlan& plan, const ProductKey& key, ProductPlan::Where where,
                                             const std::vector<cublasLtMatmulAlgo_t>& candidates);
  /// Infinitely many if the library refuses the plan's algorithm.
  [[nodiscard]] float milliseconds_of(const ProductPlan& plan, const ProductPlan::Where& where,
                                      Stopwatch& stopwatch) const;

  Device& device_;
  const Workspace& workspace_;
  ProductOptions options_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<ProductKey, std::optional<ProductPlan>> plans_;
};

}  // namespace echelon::cuda
