// What cuBLASLt must know of a matmul before it can be enqueued: shapes, dtypes, layouts of the operands, and the
// epilogue.
//
// cuBLASLt's matrices are column-major: our row-major c[M, N] = a b is its c^T[N, M] = b^T a^T. So the operands are
// exchanged, and its rows of the result are our columns.
#pragma once

#include "cuda/device/workspace.h"
#include "ops/gpu/product_calls.h"

#include <cublasLt.h>

#include <array>
#include <compare>
#include <memory>
#include <type_traits>
#include <vector>

namespace echelon::cuda {

/// Throws Failure with what cuBLASLt says.
void check(cublasStatus_t status, const char* what);

/// How float32 matmuls are computed: in float32, or in tensor cores with operands rounded to TensorFloat-32's 10 bits.
enum class Float32Products : std::uint8_t { exact, tf32 };

/// Products of one key have one plan. Operands of float8 have been made [M, K] and [N, K], as tensor cores take them.
struct ProductKey {
  std::int64_t M = 0, N = 0, K = 0;
  DType operands = DType::float32, result = DType::float32;
  OperandFormat a_format = OperandFormat::own, b_format = OperandFormat::own;
  bool transpose_a = false, transpose_b = false;
  Epilogue epilogue = Epilogue::none;
  std::int64_t count = 1;
  std::array<std::int64_t, 4> steps = {};       // of a batch: elements from one a, b, c and vector to the next
  std::array<std::int64_t, 4> alignments = {};  // in bytes, at most 16: of a, b, c and addend, and the vector

  auto operator<=>(const ProductKey&) const = default;
};
/// The library's descriptors of a matmul, and the algorithm that was chosen.
class ProductPlan {
 public:
  ProductPlan(const ProductKey& key, Float32Products float32_products);

  struct Where {
    const std::byte* a = nullptr;
    const std::byte* b = nullptr;
    const std::byte* addend = nullptr;  // c itself, where it is added to
    std::byte* c = nullptr;
    std::byte* vector = nullptr;                       // of the epilogue
    bool adds = false;                                 // the addend
    const float *back_a = nullptr, *back_b = nullptr;  // of float8: on the device, what the operands are multiplied by
  };

  /// The algorithms that the library offers, the best by its own estimate first; none if it has none for such a matmul.
  /// All of them sum in the compute type, and in an order that does not depend on time.
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle, const Where& where,
                                                             int most) const;
  void choose(const cublasLtMatmulAlgo_t& algorithm) { algorithm_ = algorithm; }

  /// Throws Failure if the library refuses.
  void enqueue(cublasLtHandle_t handle, const Where& where, const Workspace& workspace, cudaStream_t stream) const;
  /// Nothing is enqueued if it does not succeed: not every algorithm that the library offers runs.
  [[nodiscard]] cublasStatus_t try_to_enqueue(cublasLtHandle_t handle, const Where& where, const Workspace& workspace,
                                              cudaStream_t stream) const;

  // Of the workspace; the rest is for what epilogues write.
  static constexpr std::int64_t workspace_bytes = Workspace::num_bytes - (std::int64_t{1} << 20);

 private:
  template <auto destroy>
  struct Destroy {
    template <class T>
    void operator()(T* of) const {
      destroy(of);
    }
  };
  template <class Handle, auto destroy>
  using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const;
  void set_addresses(const Where& where) const;

  [[nodiscard]] Layout layout_of(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t step) const;

  ProductKey key_;
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation_;
  Layout a_, b_, c_;
  cublasLtMatmulAlgo_t algorithm_ = {};
};

/// The kind of a call with these addresses.
[[nodiscard]] ProductKey key_of(const ProductCall& call, const ProductPlan::Where& where);

}  // namespace echelon::cuda
