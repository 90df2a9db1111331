// The checks of tensors that the operations share.
#pragma once

#include "base/error.h"
#include "tensor/tensor.h"

#include <string_view>

namespace echelon {

/// The checks of one operation. Each throws Failure if it does not hold: "op: tensor is dtype [sizes], but must ...".
class ArgumentChecker {
 public:
  explicit ArgumentChecker(std::string_view op) : op_(op) {}

  void that(bool holds, std::string_view tensor, const Tensor& t, std::string_view expected) const {
    if (!holds)
      throw Failure(
          fmt::format("{}: {} is {} {}, but must {}", op_, tensor, name_of(t.dtype), to_string(t.sizes), expected));
  }
  void dims(std::string_view name, const Tensor& t, int num_dims) const {
    if (t.sizes.num_dims() != num_dims) that(false, name, t, fmt::format("have {} dims", num_dims));
  }
  void count(std::string_view name, const Tensor& t, std::int64_t num_elements) const {
    if (t.num_elements() != num_elements) that(false, name, t, fmt::format("have {} elements", num_elements));
  }
  void dtype(std::string_view name, const Tensor& t, DType wanted) const {
    if (t.dtype != wanted) that(false, name, t, fmt::format("be {}", name_of(wanted)));
  }
  void like(std::string_view name, const Tensor& t, const Tensor& model) const {
    count(name, t, model.num_elements());
    dtype(name, t, model.dtype);
  }
  void computes(std::string_view name, const Tensor& t) const {
    that(!is_integer(t.dtype), name, t, "be float32, float64, bfloat16 or float16");
  }
  void matrix(std::string_view name, const Tensor& t) const {
    that(t.sizes.num_dims() >= 1, name, t, "have at least one dim");
    computes(name, t);
  }
  /// A gradient of a weight: of the activations' dtype or its accumulate_dtype.
  void gradient(std::string_view name, const Tensor& t, DType activations) const {
    that(t.dtype == activations || t.dtype == accumulate_dtype(activations), name, t,
         "have the activations' dtype or its accumulate_dtype");
  }
  /// One value for each column of a matrix, of its dtype.
  void vector(std::string_view name, const Tensor& t, const Tensor& matrix) const {
    count(name, t, matrix.size(-1));
    dtype(name, t, matrix.dtype);
  }
  void scalars(std::string_view name, const Tensor& t, std::int64_t num_elements) const {
    count(name, t, num_elements);
    dtype(name, t, DType::float64);
  }
  void statistics(std::string_view name, const Tensor& t, std::int64_t rows, DType activations) const {
    count(name, t, rows);
    dtype(name, t, accumulate_dtype(activations));
  }

 private:
  std::string_view op_;
};

[[nodiscard]] inline std::int64_t num_columns(const Tensor& t) { return t.size(-1); }
[[nodiscard]] inline std::int64_t num_rows(const Tensor& t) {
  std::int64_t rows = 1;
  for (int dim = 0; dim + 1 < t.sizes.num_dims(); ++dim) rows *= t.size(dim);
  return rows;
}

}  // namespace echelon
