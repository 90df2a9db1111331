#include "cuda/ops/product_plan.h"

#include "base/error.h"

#include <algorithm>
#include <bit>

namespace echelon::cuda {
namespace {

constexpr std::int64_t most_alignment = 16;  // no kernel reads more at once, so what lies better is no different product

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

cublasComputeType_t compute_type(DType operands, Float32Products float32_products) {
  if (operands == DType::float64) return CUBLAS_COMPUTE_64F;
  return operands == DType::float32 && float32_products == Float32Products::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none: return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::bias_gradient: return CUBLASLT_EPILOGUE_BGRADB;  // our a is its b
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

std::int64_t alignment_of(const std::byte* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  return bits == 0 ? most_alignment : std::min<std::int64_t>(most_alignment, std::int64_t{1} << std::countr_zero(bits));
}

}  // namespace

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Failure(fmt::format("{}: cuBLASLt status {} ({})", what, static_cast<int>(status), cublasLtGetStatusName(status)));
}

ProductKey key_of(const MatmulArgs& args, Epilogue epilogue, Tensor vector) {
  return {.M = args.c.size(0),
          .N = args.c.size(1),
          .K = args.a.size(args.transpose_a ? 0 : 1),
          .operands = args.a.dtype,
          .result = args.c.dtype,
          .transpose_a = args.transpose_a,
          .transpose_b = args.transpose_b,
          .epilogue = epilogue,
          .alignments = {alignment_of(args.a.data), alignment_of(args.b.data), alignment_of(args.c.data), alignment_of(vector.data)}};
}

ProductPlan::ProductPlan(const ProductKey& key, Float32Products float32_products) : key_(key) {
  cublasLtMatmulDesc_t operation = nullptr;
  check(cublasLtMatmulDescCreate(&operation, compute_type(key.operands, float32_products), key.operands == DType::float64 ? CUDA_R_64F : CUDA_R_32F),
        "a product");
  operation_.reset(operation);
  set(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key.epilogue));
  const auto layout = [](Layout& out, DType dtype, std::int64_t rows, std::int64_t columns) {  // of our matrix
    cublasLtMatrixLayout_t made = nullptr;
    check(cublasLtMatrixLayoutCreate(&made, type_of(dtype), static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows), columns),
          "a matrix of a product");
    out.reset(made);
  };
  layout(a_, key.operands, key.transpose_b ? key.N : key.K, key.transpose_b ? key.K : key.N);
  layout(b_, key.operands, key.transpose_a ? key.K : key.M, key.transpose_a ? key.M : key.K);
  layout(c_, key.result, key.M, key.N);
}

template <class Value>
void ProductPlan::set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
  check(cublasLtMatmulDescSetAttribute(operation_.get(), attribute, &value, sizeof value), "an attribute of a product");
}

std::vector<cublasLtMatmulAlgo_t> ProductPlan::candidates(cublasLtHandle_t handle, int most) const {
  cublasLtMatmulPreference_t made = nullptr;
  check(cublasLtMatmulPreferenceCreate(&made), "a product's preference");
  const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value), "a product's preference");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::size_t>(workspace_bytes));
  // A cut of k whose parts were added in a bfloat16 result would round once per part.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto alignment = [&](int i) { return static_cast<std::uint32_t>(key_.alignments[static_cast<std::size_t>(i)]); };
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(1));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(0));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(2));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(2));
  // The library reads off the vector's address how it is aligned; it does not follow it.
  if (key_.epilogue != Epilogue::none) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<void*>(key_.alignments[3]));

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int num_found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, operation_.get(), a_.get(), b_.get(), c_.get(), c_.get(), preference.get(), most, results.data(), &num_found);
  if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE)
    check(status, "the choice of an algorithm for a product");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < num_found; ++i)
    if (const auto& found = results[static_cast<std::size_t>(i)]; found.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(found.algo);
  return algorithms;
}

void ProductPlan::enqueue(cublasLtHandle_t handle, const Where& where, const Workspace& workspace, cudaStream_t stream) const {
  const double alpha64 = 1, beta64 = where.accumulates ? 1 : 0;
  const float alpha32 = 1, beta32 = where.accumulates ? 1 : 0;
  const bool is_double = key_.operands == DType::float64;
  const void* const alpha = is_double ? static_cast<const void*>(&alpha64) : &alpha32;
  const void* const beta = is_double ? static_cast<const void*>(&beta64) : &beta32;
  if (key_.epilogue != Epilogue::none) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(where.vector));
  check(cublasLtMatmul(handle, operation_.get(), alpha, where.b, a_.get(), where.a, b_.get(), beta, where.c, c_.get(), where.c, c_.get(), &algorithm_,
                       workspace.as<std::byte>(workspace_bytes), static_cast<std::size_t>(workspace_bytes), stream),
        "a product");
}

}  // namespace echelon::cuda
