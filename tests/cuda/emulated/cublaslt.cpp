#include "cublasLt.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

namespace emulated {

struct MatmulOperation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* vector = nullptr;
  std::int64_t vector_step = 0;
  const float *a_scale = nullptr, *b_scale = nullptr;
};
struct MatrixLayout {
  cudaDataType_t type;
  std::int64_t rows, columns, stride;  // column-major
  std::int32_t count = 1;
  std::int64_t step = 0;  // to the next matrix of a batch
};

struct MatmulPreference {
  std::size_t workspace_bytes = 0;
  std::uint32_t reduction_schemes = 7;
  std::array<std::uint32_t, 4> alignments = {256, 256, 256, 256};  // of a, b, c, d: the library's defaults
};

Products& products() {
  static Products the_products;
  return the_products;
}

namespace {

/// What an algorithm remembers of the question that it answers, so that it is not used for another.
struct Algorithm {
  std::uint64_t rank;
  std::array<std::uint32_t, 4> alignments;
  std::uint64_t workspace_bytes;
  std::uint64_t vector_alignment;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

std::uint64_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  return bits & (~bits + 1);
}

bool is_float8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

double decoded(unsigned bits, int mantissa_bits, int bias) {
  const unsigned mantissa = bits & ((1U << mantissa_bits) - 1), exponent = (bits & 0x7fU) >> mantissa_bits;
  const bool is_e4m3 = mantissa_bits == 3;
  double value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  if (exponent > 0) value = std::ldexp(1 + std::ldexp(mantissa, -mantissa_bits), static_cast<int>(exponent) - bias);
  if (is_e4m3 ? (bits & 0x7fU) == 0x7fU : exponent == 31 && mantissa != 0)
    value = std::numeric_limits<double>::quiet_NaN();
  if (!is_e4m3 && exponent == 31 && mantissa == 0) value = std::numeric_limits<double>::infinity();
  return (bits & 0x80U) != 0 ? -value : value;
}

double read(const void* numbers, cudaDataType_t type, std::int64_t i) {
  switch (type) {
    case CUDA_R_32F: return static_cast<const float*>(numbers)[i];
    case CUDA_R_64F: return static_cast<const double*>(numbers)[i];
    case CUDA_R_16BF: return __bfloat162float(static_cast<const __nv_bfloat16*>(numbers)[i]);
    case CUDA_R_16F: return __half2float(static_cast<const __half*>(numbers)[i]);
    case CUDA_R_8F_E4M3: return decoded(static_cast<const unsigned char*>(numbers)[i], 3, 7);
    case CUDA_R_8F_E5M2: return decoded(static_cast<const unsigned char*>(numbers)[i], 2, 15);
    default: throw std::runtime_error("a product of a type that is not emulated");
  }
}
void write(void* numbers, cudaDataType_t type, std::int64_t i, double value) {
  switch (type) {
    case CUDA_R_32F: static_cast<float*>(numbers)[i] = static_cast<float>(value); return;
    case CUDA_R_64F: static_cast<double*>(numbers)[i] = value; return;
    case CUDA_R_16BF: static_cast<__nv_bfloat16*>(numbers)[i] = __nv_bfloat16(static_cast<float>(value)); return;
    case CUDA_R_16F: static_cast<__half*>(numbers)[i] = __half(static_cast<float>(value)); return;
    default: throw std::runtime_error("a product of a type that is not emulated");
  }
}

std::int64_t num_bytes(cudaDataType_t type, std::int64_t count) {
  return count * (type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : is_float8(type) ? 1 : 2);
}
template <class Pointer>
Pointer moved(Pointer address, cudaDataType_t type, std::int64_t count) {
  return reinterpret_cast<Pointer>(reinterpret_cast<std::uintptr_t>(address) +
                                   static_cast<std::uintptr_t>(num_bytes(type, count)));
}

/// op(x) as a row-major matrix of the compute type, so that the loops below are quick.
template <class T>
std::vector<T> gathered(const void* numbers, const MatrixLayout& layout, bool is_transposed, std::int64_t rows,
                        std::int64_t columns) {
  std::vector<T> out(static_cast<std::size_t>(rows * columns));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      out[static_cast<std::size_t>(r * columns + c)] =
          static_cast<T>(read(numbers, layout.type, is_transposed ? c + r * layout.stride : r + c * layout.stride));
  return out;
}

template <class T>
void multiply(const MatmulOperation& operation, double alpha, const void* a, const MatrixLayout& a_layout,
              const void* b, const MatrixLayout& b_layout, double beta, const void* c, void* d,
              const MatrixLayout& d_layout) {
  const bool transposes_a = operation.transpose_a == CUBLAS_OP_T, transposes_b = operation.transpose_b == CUBLAS_OP_T;
  const std::int64_t M = d_layout.rows, N = d_layout.columns, K = transposes_a ? a_layout.rows : a_layout.columns;
  const std::vector<T> A = gathered<T>(a, a_layout, transposes_a, M, K),
                       B = gathered<T>(b, b_layout, transposes_b, K, N);
  note_access(num_bytes(a_layout.type, M * K) + num_bytes(b_layout.type, K * N) +
              num_bytes(d_layout.type, M * N) * (beta == 0 ? 1 : 2));
  if (operation.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    note_access(num_bytes(d_layout.type, operation.epilogue == CUBLASLT_EPILOGUE_BIAS ? M : N));
  std::vector<T> row(static_cast<std::size_t>(N));
  for (std::int64_t m = 0; m < M; ++m) {
    std::fill(row.begin(), row.end(), T(0));
    for (std::int64_t k = 0; k < K; ++k)
      for (std::int64_t n = 0; n < N; ++n)
        row[static_cast<std::size_t>(n)] +=
            A[static_cast<std::size_t>(m * K + k)] * B[static_cast<std::size_t>(k * N + n)];
    const double bias = operation.epilogue == CUBLASLT_EPILOGUE_BIAS ? read(operation.vector, d_layout.type, m) : 0;
    for (std::int64_t n = 0; n < N; ++n) {
      const std::int64_t i = m + n * d_layout.stride;
      const double before = beta == 0 ? 0 : beta * read(c, d_layout.type, i);
      write(d, d_layout.type, i, before + alpha * static_cast<double>(row[static_cast<std::size_t>(n)]) + bias);
    }
  }
  if (operation.epilogue != CUBLASLT_EPILOGUE_BGRADB) return;
  for (std::int64_t n = 0; n < N; ++n) {
    T sum = 0;
    for (std::int64_t k = 0; k < K; ++k) sum += B[static_cast<std::size_t>(k * N + n)];
    write(operation.vector, d_layout.type, n, static_cast<double>(sum));
  }
}

}  // namespace
}  // namespace emulated

const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new char;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete static_cast<char*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *operation = new emulated::MatmulOperation{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  cudaDeviceSynchronize();
  delete operation;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t /*num_bytes*/) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      operation->transpose_a = *static_cast<const cublasOperation_t*>(value);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      operation->transpose_b = *static_cast<const cublasOperation_t*>(value);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      operation->epilogue = *static_cast<const cublasLtEpilogue_t*>(value);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      operation->a_scale = *static_cast<const float* const*>(value);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      operation->b_scale = *static_cast<const float* const*>(value);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      operation->vector = *static_cast<void* const*>(value);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      operation->vector_step = *static_cast<const std::int64_t*>(value);
      return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t stride) {
  if (rows == 0 || columns == 0 || stride < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout =
      new emulated::MatrixLayout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t num_bytes) {
  const auto take = [&](auto& member) {
    if (num_bytes != sizeof member) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&member, value, num_bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return take(layout->count);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return take(layout->step);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  cudaDeviceSynchronize();
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new emulated::MatmulPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t num_bytes) {
  const auto take = [&](auto& member) {
    if (num_bytes != sizeof member) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&member, value, num_bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return take(preference->workspace_bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return take(preference->reduction_schemes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return take(preference->alignments[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return take(preference->alignments[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return take(preference->alignments[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return take(preference->alignments[3]);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* num_found) {
  ++emulated::products().num_heuristics;
  *num_found = 0;
  if (a->count != b->count || a->count != c->count) return CUBLAS_STATUS_INVALID_VALUE;
  if (c->count > 1 && (!emulated::products().has_batches || emulated::is_float8(a->type)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool has_epilogue = operation->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  if (has_epilogue && (operation->compute == CUBLAS_COMPUTE_64F || operation->vector == nullptr))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (emulated::is_float8(a->type) || emulated::is_float8(b->type)) {
    const bool is_tn = operation->transpose_a == CUBLAS_OP_T && operation->transpose_b == CUBLAS_OP_N;
    const bool are_float8 = emulated::is_float8(a->type) && emulated::is_float8(b->type) &&
                            !(a->type == CUDA_R_8F_E5M2 && a->type == b->type);
    const bool are_whole =
        a->rows % 16 == 0 && a->columns % 16 == 0 && a->stride % 16 == 0 && b->stride % 16 == 0 && c->stride % 8 == 0;
    const bool is_aligned = preference->alignments[0] % 16 == 0 && preference->alignments[1] % 16 == 0;
    const bool has_scales = operation->a_scale != nullptr && operation->b_scale != nullptr;
    if (!is_tn || !are_float8 || !are_whole || !is_aligned || !has_scales ||
        operation->epilogue == CUBLASLT_EPILOGUE_BGRADB)
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  // Only products of float32 can be rounded to TensorFloat-32, and those of float8 are formed in float32.
  const bool multiplies_float32 = a->type == CUDA_R_32F && b->type == CUDA_R_32F;
  if (operation->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && !multiplies_float32) return CUBLAS_STATUS_NOT_SUPPORTED;
  constexpr std::uint32_t in_the_format_of_the_result = 1 | 4;
  // Echelon's sums are never formed so.
  if ((preference->reduction_schemes & in_the_format_of_the_result) != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  constexpr int num_known = 3;
  for (; *num_found < std::min(wanted, num_known); ++*num_found) {
    cublasLtMatmulHeuristicResult_t& result = results[*num_found];
    result = {};
    const emulated::Algorithm algorithm = {
        .rank = static_cast<std::uint64_t>(*num_found),
        .alignments = preference->alignments,
        .workspace_bytes = preference->workspace_bytes,
        .vector_alignment = has_epilogue ? std::min<std::uint64_t>(emulated::alignment_of(operation->vector), 16) : 1};
    std::memcpy(&result.algo, &algorithm, sizeof algorithm);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* chosen, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  const bool ta = operation->transpose_a == CUBLAS_OP_T, tb = operation->transpose_b == CUBLAS_OP_T;
  const auto rows = [](cublasLtMatrixLayout_t x, bool transposes) { return transposes ? x->columns : x->rows; };
  const auto columns = [](cublasLtMatrixLayout_t x, bool transposes) { return transposes ? x->rows : x->columns; };
  if (rows(a_layout, ta) != d_layout->rows || columns(b_layout, tb) != d_layout->columns ||
      columns(a_layout, ta) != rows(b_layout, tb))
    return CUBLAS_STATUS_INVALID_VALUE;
  emulated::Algorithm algorithm;
  std::memcpy(&algorithm, chosen, sizeof algorithm);
  const std::array<const void*, 4> operands = {a, b, c, d};
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (emulated::alignment_of(operands[i]) < algorithm.alignments[i]) return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace == nullptr || workspace_bytes < algorithm.workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  const bool has_epilogue = operation->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  if (has_epilogue && emulated::alignment_of(operation->vector) < algorithm.vector_alignment)
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool is_double = operation->scale == CUDA_R_64F;
  const double alpha_value = is_double ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  const double beta_value = is_double ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  emulated::Products& record = emulated::products();
  if (algorithm.rank < record.refused_algorithms) return CUBLAS_STATUS_NOT_SUPPORTED;
  ++record.num_products;
  if (has_epilogue) ++record.num_epilogues;
  if (d_layout->count > 1) ++record.num_batches;
  if (beta_value != 0 && c != d) ++record.num_addends;
  record.last_algorithm = algorithm.rank;
  record.last_compute = operation->compute;
  const bool is_slow = algorithm.rank < record.slow_algorithms;
  const cudaError_t error =
      emulated::enqueue(stream, [=, op = *operation, al = *a_layout, bl = *b_layout, dl = *d_layout] {
        if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        const double scale =
            emulated::is_float8(al.type) ? static_cast<double>(*op.a_scale) * static_cast<double>(*op.b_scale) : 1;
        for (std::int64_t i = 0; i < dl.count; ++i) {
          emulated::MatmulOperation each = op;
          each.vector = emulated::moved(op.vector, dl.type, i * op.vector_step);
          const void *const a_i = emulated::moved(a, al.type, i * al.step),
                            *const b_i = emulated::moved(b, bl.type, i * bl.step),
                            *const c_i = emulated::moved(c, dl.type, i * dl.step);
          void* const d_i = emulated::moved(d, dl.type, i * dl.step);
          if (op.compute == CUBLAS_COMPUTE_64F)
            emulated::multiply<double>(each, alpha_value, a_i, al, b_i, bl, beta_value, c_i, d_i, dl);
          else
            emulated::multiply<float>(each, alpha_value * scale, a_i, al, b_i, bl, beta_value, c_i, d_i, dl);
        }
      });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
