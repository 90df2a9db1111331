// Tensors of more elements than int32 counts, in little memory: the pages of a period repeat over all addresses. Values
// depend on the place in the period, which divides no power of two, so that a wrong offset reads other values. Rows
// that a test compares have pages of their own; nothing is mapped before and after.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>
#include <vector>

namespace echelon::testing {

/// Of the outermost dim.
struct RowWindow {
  std::int64_t first = 0, count = 0;
};

class LargeTensor {
 public:
  /// Multiples of 1/8 from -2 to 2, exact in every dtype.
  LargeTensor(DType dtype, Sizes sizes, unsigned seed);
  ~LargeTensor();
  LargeTensor(const LargeTensor&) = delete;
  LargeTensor& operator=(const LargeTensor&) = delete;

  operator const Tensor&() const { return tensor_; }  // NOLINT(google-explicit-constructor)
  const Tensor* operator->() const { return &tensor_; }

  /// Gives rows pages of their own, with their values or with NaN.
  LargeTensor& keep(const std::vector<RowWindow>& windows);
  LargeTensor& clear(const std::vector<RowWindow>& windows);

 private:
  void own(std::int64_t first_byte, std::int64_t num_bytes);

  Tensor tensor_;
  std::byte* reserved_ = nullptr;
  std::int64_t num_reserved_ = 0;
};

/// Memory of a small tensor: a copy of `x`, or NaN of its size.
class SmallTensor {
 public:
  explicit SmallTensor(const Tensor& x);
  SmallTensor(DType dtype, Sizes sizes);
  SmallTensor(SmallTensor&&) = default;
  operator const Tensor&() const { return tensor_; }  // NOLINT(google-explicit-constructor)
  const Tensor* operator->() const { return &tensor_; }

 private:
  std::vector<std::byte> bytes_;
  Tensor tensor_;
};

/// ECHELON_SIZES=long: 2^31 elements; else 2^17.
[[nodiscard]] std::int64_t num_small_elements();
/// For rows of `row_elements`: how many are that many elements and some more, and those that a test compares: the
/// first, those at the boundary, and the last.
[[nodiscard]] std::int64_t num_large_rows(std::int64_t row_elements);
[[nodiscard]] std::vector<RowWindow> windows_of(std::int64_t row_elements);

/// The values as a test fills them: multiples of 1/8 again.
[[nodiscard]] SmallTensor small_values(DType dtype, Sizes sizes, unsigned seed);

[[nodiscard]] bool has_same_bytes(const Tensor& a, const Tensor& b);

}  // namespace echelon::testing
