#include "cuda/ops/products.h"

#include "base/error.h"

namespace echelon::cuda {
namespace {

constexpr std::size_t workspace_bytes = Workspace::num_bytes;

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Failure(fmt::format("{}: cuBLASLt status {} ({})", what, static_cast<int>(status), cublasLtGetStatusName(status)));
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return CUDA_R_32F;
    case DType::float64: return CUDA_R_64F;
    case DType::bfloat16: return CUDA_R_16BF;
    case DType::float16: return CUDA_R_16F;
    case DType::int32: break;
  }
  throw Failure(fmt::format("no product of {}", name_of(dtype)));
}

}  // namespace

Products::Products(Device& device, const Workspace& workspace) : device_(device), workspace_(workspace) { check(cublasLtCreate(&handle_), "cuBLASLt"); }

Products::~Products() {
  for (auto& [key, plan] : plans_) {
    cublasLtMatmulDescDestroy(plan.operation);
    for (cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.c}) cublasLtMatrixLayoutDestroy(layout);
  }
  cublasLtDestroy(handle_);
}

// cuBLASLt's matrices are column-major: our row-major c[M, N] = a b is its c^T[N, M] = b^T a^T, so the operands change places.
const Products::Plan& Products::plan_of(const MatmulArgs& args) {
  const std::int64_t M = args.c.size(0), N = args.c.size(1), K = args.a.size(args.transpose_a ? 0 : 1);
  const auto [found, is_new] = plans_.try_emplace(Key{M, N, K, args.a.dtype, args.c.dtype, args.transpose_a, args.transpose_b, args.accumulates});
  Plan& plan = found->second;
  if (!is_new) return plan;
  const bool is_double = args.a.dtype == DType::float64;
  check(cublasLtMatmulDescCreate(&plan.operation, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, is_double ? CUDA_R_64F : CUDA_R_32F), "a product");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(plan.operation, attribute, &value, sizeof value), "a product's attribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, args.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, args.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  const auto layout = [&](cublasLtMatrixLayout_t& out, const Tensor& x) {
    check(cublasLtMatrixLayoutCreate(&out, type_of(x.dtype), static_cast<std::uint64_t>(x.size(1)), static_cast<std::uint64_t>(x.size(0)), x.size(1)),
          "a matrix of a product");
  };
  layout(plan.a, args.b);
  layout(plan.b, args.a);
  layout(plan.c, args.c);
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "a product's preference");
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes),
        "a product's workspace");
  cublasLtMatmulHeuristicResult_t best = {};
  int num_found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.a, plan.b, plan.c, plan.c, preference, 1, &best, &num_found);
  cublasLtMatmulPreferenceDestroy(preference);
  check(status, "the choice of an algorithm for a product");
  if (num_found == 0) throw Failure(fmt::format("cuBLASLt has no algorithm for a product of {} x {} x {} in {}", M, N, K, name_of(args.a.dtype)));
  plan.algorithm = best.algo;
  return plan;
}

void Products::enqueue(const MatmulArgs& args) {
  const std::int64_t K = args.a.size(args.transpose_a ? 0 : 1);
  if (args.c.num_elements() == 0) return;
  if (K == 0) {  // an empty sum
    if (!args.accumulates) cuda::check(cudaMemsetAsync(args.c.data, 0, static_cast<std::size_t>(args.c.num_bytes()), device_.compute().get()), "zeros");
    return;
  }
  const Plan& plan = plan_of(args);
  const double alpha64 = 1, beta64 = args.accumulates ? 1 : 0;
  const float alpha32 = 1, beta32 = args.accumulates ? 1 : 0;
  const bool is_double = args.a.dtype == DType::float64;
  const void* const alpha = is_double ? static_cast<const void*>(&alpha64) : &alpha32;
  const void* const beta = is_double ? static_cast<const void*>(&beta64) : &beta32;
  check(cublasLtMatmul(handle_, plan.operation, alpha, args.b.data, plan.a, args.a.data, plan.b, beta, args.c.data, plan.c, args.c.data, plan.c,
                       &plan.algorithm, workspace_.as<std::byte>(Workspace::num_bytes), workspace_bytes, device_.compute().get()),
        "a product");
}

}  // namespace echelon::cuda
