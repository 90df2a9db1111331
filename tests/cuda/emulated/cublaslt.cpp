#include "cublasLt.h"
#include "cuda_bf16.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace emulated {

struct MatmulOperation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
};
struct MatrixLayout {
  cudaDataType_t type;
  std::int64_t rows, columns, stride;  // column-major
};

namespace {

double read(const void* numbers, cudaDataType_t type, std::int64_t i) {
  switch (type) {
    case CUDA_R_32F: return static_cast<const float*>(numbers)[i];
    case CUDA_R_64F: return static_cast<const double*>(numbers)[i];
    case CUDA_R_16BF: return __bfloat162float(static_cast<const __nv_bfloat16*>(numbers)[i]);
    default: throw std::runtime_error("a product of a type that is not emulated");
  }
}
void write(void* numbers, cudaDataType_t type, std::int64_t i, double value) {
  switch (type) {
    case CUDA_R_32F: static_cast<float*>(numbers)[i] = static_cast<float>(value); return;
    case CUDA_R_64F: static_cast<double*>(numbers)[i] = value; return;
    case CUDA_R_16BF: static_cast<__nv_bfloat16*>(numbers)[i] = __nv_bfloat16(static_cast<float>(value)); return;
    default: throw std::runtime_error("a product of a type that is not emulated");
  }
}

/// op(x) as a row-major matrix of the compute type, so that the loops below are quick.
template <class T>
std::vector<T> gathered(const void* numbers, const MatrixLayout& layout, bool is_transposed, std::int64_t rows, std::int64_t columns) {
  std::vector<T> out(static_cast<std::size_t>(rows * columns));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      out[static_cast<std::size_t>(r * columns + c)] =
          static_cast<T>(read(numbers, layout.type, is_transposed ? c + r * layout.stride : r + c * layout.stride));
  return out;
}

template <class T>
void multiply(const MatmulOperation& operation, double alpha, const void* a, const MatrixLayout& a_layout, const void* b, const MatrixLayout& b_layout,
              double beta, const void* c, void* d, const MatrixLayout& d_layout) {
  const bool transposes_a = operation.transpose_a == CUBLAS_OP_T, transposes_b = operation.transpose_b == CUBLAS_OP_T;
  const std::int64_t M = d_layout.rows, N = d_layout.columns, K = transposes_a ? a_layout.rows : a_layout.columns;
  const std::vector<T> A = gathered<T>(a, a_layout, transposes_a, M, K), B = gathered<T>(b, b_layout, transposes_b, K, N);
  std::vector<T> row(static_cast<std::size_t>(N));
  for (std::int64_t m = 0; m < M; ++m) {
    std::fill(row.begin(), row.end(), T(0));
    for (std::int64_t k = 0; k < K; ++k)
      for (std::int64_t n = 0; n < N; ++n) row[static_cast<std::size_t>(n)] += A[static_cast<std::size_t>(m * K + k)] * B[static_cast<std::size_t>(k * N + n)];
    for (std::int64_t n = 0; n < N; ++n) {
      const std::int64_t i = m + n * d_layout.stride;
      const double before = beta == 0 ? 0 : beta * read(c, d_layout.type, i);
      write(d, d_layout.type, i, before + alpha * static_cast<double>(row[static_cast<std::size_t>(n)]));
    }
  }
}

}  // namespace
}  // namespace emulated

const char* cublasLtGetStatusName(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new char;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete static_cast<char*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute, cudaDataType_t scale) {
  *operation = new emulated::MatmulOperation{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  cudaDeviceSynchronize();
  delete operation;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t /*num_bytes*/) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: operation->transpose_a = *static_cast<const cublasOperation_t*>(value); return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_TRANSB: operation->transpose_b = *static_cast<const cublasOperation_t*>(value); return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t rows, std::uint64_t columns, std::int64_t stride) {
  if (rows == 0 || columns == 0 || stride < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new emulated::MatrixLayout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  cudaDeviceSynchronize();
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new char;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete static_cast<char*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t* results,
                                              int* num_found) {
  *num_found = 1;
  results[0] = {};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta, const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void*, std::size_t, cudaStream_t stream) {
  const bool ta = operation->transpose_a == CUBLAS_OP_T, tb = operation->transpose_b == CUBLAS_OP_T;
  const auto rows = [](cublasLtMatrixLayout_t x, bool transposes) { return transposes ? x->columns : x->rows; };
  const auto columns = [](cublasLtMatrixLayout_t x, bool transposes) { return transposes ? x->rows : x->columns; };
  if (rows(a_layout, ta) != d_layout->rows || columns(b_layout, tb) != d_layout->columns || columns(a_layout, ta) != rows(b_layout, tb))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool is_double = operation->scale == CUDA_R_64F;
  const double alpha_value = is_double ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  const double beta_value = is_double ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  const cudaError_t error = emulated::enqueue(stream, [=, op = *operation, al = *a_layout, bl = *b_layout, dl = *d_layout] {
    if (op.compute == CUBLAS_COMPUTE_64F)
      emulated::multiply<double>(op, alpha_value, a, al, b, bl, beta_value, c, d, dl);
    else
      emulated::multiply<float>(op, alpha_value, a, al, b, bl, beta_value, c, d, dl);
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
