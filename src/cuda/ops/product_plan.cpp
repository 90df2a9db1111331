#include "cuda/ops/product_plan.h"

#include "base/error.h"

#include <algorithm>
#include <bit>

namespace echelon::cuda {
namespace {

// No kernel reads more at once, so a better alignment does not change the plan.
constexpr std::int64_t most_alignment = 16;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return CUDA_R_32F;
    case DType::float64: return CUDA_R_64F;
    case DType::bfloat16: return CUDA_R_16BF;
    case DType::float16: return CUDA_R_16F;
    case DType::int32:
    case DType::int16: break;
  }
  throw Failure(fmt::format("no product of {}", name_of(dtype)));
}

cudaDataType_t type_of(OperandFormat format, DType own) {
  switch (format) {
    case OperandFormat::own: return type_of(own);
    case OperandFormat::float8_e4m3: return CUDA_R_8F_E4M3;
    case OperandFormat::float8_e5m2: return CUDA_R_8F_E5M2;
  }
  return type_of(own);
}

cublasComputeType_t compute_type(const ProductKey& key, Float32Products float32_products) {
  if (key.operands == DType::float64) return CUBLAS_COMPUTE_64F;
  const bool multiplies_float32 = key.operands == DType::float32 && key.a_format == OperandFormat::own;
  return multiplies_float32 && float32_products == Float32Products::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                         : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none: return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::bias_gradient: return CUBLASLT_EPILOGUE_BGRADB;  // our a is its b
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

/// Of all addresses at this distance from each other.
std::int64_t alignment_of(const std::byte* address, std::int64_t step = 0) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | static_cast<std::uintptr_t>(step);
  return bits == 0 ? most_alignment : std::min<std::int64_t>(most_alignment, std::int64_t{1} << std::countr_zero(bits));
}

}  // namespace

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Failure(
        fmt::format("{}: cuBLASLt status {} ({})", what, static_cast<int>(status), cublasLtGetStatusName(status)));
}

ProductKey key_of(const ProductCall& call, const ProductPlan::Where& where) {
  const MatmulArgs& args = call.args;
  const std::int64_t M = args.c.size(0);
  const std::int64_t vector_step =
      call.epilogue == Epilogue::bias_gradient && call.count > 1 ? M * size_of(args.c.dtype) : call.vector_step;
  const auto& [a_step, b_step, c_step] = call.steps;
  return {.M = M,
          .N = args.c.size(1),
          .K = args.a.size(args.transpose_a ? 0 : 1),
          .operands = args.a.dtype,
          .result = args.c.dtype,
          .a_format = args.a_format,
          .b_format = args.b_format,
          .transpose_a = args.transpose_a && !args.is_float8(),
          .transpose_b = args.transpose_b || args.is_float8(),
          .epilogue = call.epilogue,
          .count = call.count,
          .steps = {a_step / size_of(args.a.dtype), b_step / size_of(args.b.dtype), c_step / size_of(args.c.dtype),
                    vector_step / size_of(args.c.dtype)},
          .alignments = {args.is_float8() ? most_alignment : alignment_of(where.a, a_step),
                         args.is_float8() ? most_alignment : alignment_of(where.b, b_step),
                         std::min(alignment_of(where.c, c_step), alignment_of(where.addend, c_step)),
                         alignment_of(where.vector, vector_step)}};
}

ProductPlan::ProductPlan(const ProductKey& key, Float32Products float32_products)
    : key_(key),
      a_(layout_of(type_of(key.b_format, key.operands), key.transpose_b ? key.N : key.K,
                   key.transpose_b ? key.K : key.N, key.steps[1])),
      b_(layout_of(type_of(key.a_format, key.operands), key.transpose_a ? key.K : key.M,
                   key.transpose_a ? key.M : key.K, key.steps[0])),
      c_(layout_of(type_of(key.result), key.M, key.N, key.steps[2])) {
  cublasLtMatmulDesc_t operation = nullptr;
  check(cublasLtMatmulDescCreate(&operation, compute_type(key, float32_products),
                                 key.operands == DType::float64 ? CUDA_R_64F : CUDA_R_32F),
        "a matmul");
  operation_.reset(operation);
  set(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key.epilogue));
  if (key.count > 1 && key.epilogue != Epilogue::none) set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, key.steps[3]);
}

// Of our matrix.
ProductPlan::Layout ProductPlan::layout_of(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                                           std::int64_t step) const {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows),
                                   columns),
        "a matrix of a matmul");
  Layout layout(made);
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
    check(cublasLtMatrixLayoutSetAttribute(made, attribute, &value, sizeof value), "a batch of matrices");
  };
  if (key_.count > 1) {
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(key_.count));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  }
  return layout;
}

template <class Value>
void ProductPlan::set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
  check(cublasLtMatmulDescSetAttribute(operation_.get(), attribute, &value, sizeof value), "an attribute of a matmul");
}

void ProductPlan::set_addresses(const Where& where) const {
  if (key_.epilogue != Epilogue::none) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(where.vector));
  if (key_.a_format == OperandFormat::own) return;
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(where.back_b));
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(where.back_a));
}

std::vector<cublasLtMatmulAlgo_t> ProductPlan::candidates(cublasLtHandle_t handle, const Where& where, int most) const {
  cublasLtMatmulPreference_t made = nullptr;
  check(cublasLtMatmulPreferenceCreate(&made), "a matmul preference");
  const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
          "a matmul preference");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::size_t>(workspace_bytes));
  // A split of k whose parts are added in a bfloat16 result would round once per part.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto alignment = [&](int i) {
    return static_cast<std::uint32_t>(key_.alignments[static_cast<std::size_t>(i)]);
  };
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(1));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(0));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(2));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(2));
  set_addresses(where);  // of which the library reads off how well they are aligned

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int num_found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, operation_.get(), a_.get(), b_.get(), c_.get(), c_.get(), preference.get(),
                                     most, results.data(), &num_found);
  if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE)
    check(status, "the choice of a matmul algorithm");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < num_found; ++i)
    if (const auto& found = results[static_cast<std::size_t>(i)]; found.state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(found.algo);
  return algorithms;
}

void ProductPlan::enqueue(cublasLtHandle_t handle, const Where& where, const Workspace& workspace,
                          cudaStream_t stream) const {
  check(try_to_enqueue(handle, where, workspace, stream), "a matmul");
}

cublasStatus_t ProductPlan::try_to_enqueue(cublasLtHandle_t handle, const Where& where, const Workspace& workspace,
                                           cudaStream_t stream) const {
  const double alpha64 = 1, beta64 = where.adds ? 1 : 0;
  const float alpha32 = 1, beta32 = where.adds ? 1 : 0;
  const bool is_double = key_.operands == DType::float64;
  const void* const alpha = is_double ? static_cast<const void*>(&alpha64) : &alpha32;
  const void* const beta = is_double ? static_cast<const void*>(&beta64) : &beta32;
  set_addresses(where);
  return cublasLtMatmul(handle, operation_.get(), alpha, where.b, a_.get(), where.a, b_.get(), beta, where.addend,
                        c_.get(), where.c, c_.get(), &algorithm_, workspace.as<std::byte>(workspace_bytes),
                        static_cast<std::size_t>(workspace_bytes), stream);
}

}  // namespace echelon::cuda
