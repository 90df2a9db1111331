// A view of contiguous values: pointer, dtype, sizes. It owns nothing and is copied by value.
#pragma once

#include "tensor/dtype.h"

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace echelon {

/// Up to five sizes, outermost first.
class Sizes {
 public:
  Sizes() = default;
  Sizes(std::initializer_list<std::int64_t> sizes) {
    assert(sizes.size() <= sizes_.size());
    for (const auto size : sizes) sizes_[static_cast<std::size_t>(num_dims_++)] = size;
  }
  [[nodiscard]] int num_dims() const { return num_dims_; }
  [[nodiscard]] std::int64_t operator[](int dim) const {
    return sizes_[static_cast<std::size_t>(dim < 0 ? dim + num_dims_ : dim)];
  }
  [[nodiscard]] std::int64_t& operator[](int dim) {
    return sizes_[static_cast<std::size_t>(dim < 0 ? dim + num_dims_ : dim)];
  }
  [[nodiscard]] std::int64_t num_elements() const {
    std::int64_t product = 1;
    for (int dim = 0; dim < num_dims_; ++dim) product *= (*this)[dim];
    return product;
  }
  bool operator==(const Sizes&) const = default;

 private:
  std::array<std::int64_t, 5> sizes_{};
  int num_dims_ = 0;
};

[[nodiscard]] std::string to_string(const Sizes& sizes);  // "[2, 3]"

/// Contiguous by rule. A traced tensor has no data: code that reads it fails at once.
struct Tensor {
  std::byte* data = nullptr;
  DType dtype = DType::float32;
  Sizes sizes;

  Tensor() = default;
  Tensor(void* address, DType type, Sizes shape) : data(static_cast<std::byte*>(address)), dtype(type), sizes(shape) {}

  /// False for the default: an argument that was left out. (A traced tensor exists without data.)
  [[nodiscard]] bool exists() const { return sizes.num_dims() > 0; }
  [[nodiscard]] std::int64_t size(int dim) const { return sizes[dim]; }
  [[nodiscard]] std::int64_t num_elements() const { return sizes.num_elements(); }
  [[nodiscard]] std::int64_t num_bytes() const { return num_elements() * size_of(dtype); }

  /// The values as T; T must match the dtype.
  template <class T>
  [[nodiscard]] T* as() const {
    assert(dtype_of<T> == dtype);
    return reinterpret_cast<T*>(data);
  }

  /// The sub-tensor of `count` entries of the outermost dim, from `first` on.
  [[nodiscard]] Tensor rows(std::int64_t first, std::int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= sizes[0]);
    Tensor view = *this;
    view.sizes[0] = count;
    if (data != nullptr) view.data += first * (sizes[0] == 0 ? 0 : num_bytes() / sizes[0]);
    return view;
  }

  /// The same values with other sizes and the same number of elements.
  [[nodiscard]] Tensor reshaped(Sizes shape) const {
    assert(shape.num_elements() == num_elements());
    return {data, dtype, shape};
  }
  [[nodiscard]] Tensor flat() const { return reshaped({num_elements()}); }
};

/// Whether some byte belongs to both.
[[nodiscard]] bool overlap(const Tensor& a, const Tensor& b);

}  // namespace echelon
