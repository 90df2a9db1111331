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

  /// Rounds operands of float8 matmuls that are enqueued next.
  void round(const std::vector<OperandRounding>& roundings);
  /// A call for which the library has an algorithm, or one without anything fused. Throws Failure if it has none.
  void enqueue(const ProductCall& call);
  /// A matmul that is not is_one.
  void enqueue_empty(const MatmulArgs& args);
  /// Whether the library computes it, which it is asked once per kind.
  [[nodiscard]] bool has_algorithm(const ProductCall& call);

  /// A matmul with a nonempty sum and result, which the library computes.
  [[nodiscard]] static bool is_one(const MatmulArgs& args);

  /// Where a call leaves the sums of bias_gradient: [count, M] at the end of the workspace, which matmuls leave alone.
  /// Without data if they are too many.
  [[nodiscard]] Tensor sums_of(const ProductCall& call) const;

 private:
  /// Null: there is no algorithm.
  [[nodiscard]] const ProductPlan* plan_of(const ProductKey& key, const ProductPlan::Where& where);
  [[nodiscard]] ProductPlan::Where where_of(const ProductCall& call) const;
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
