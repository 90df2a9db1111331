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
  // Of a tensor that is rounded to 8 bits later: the operation that writes it leaves its largest magnitude at `amax`,
  // in float32. Backends that round without it leave that memory alone.
  bool has_amax = false;
  Sizes sizes;
  std::byte* amax = nullptr;

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
    Tensor view = count == sizes[0] ? *this : without_amax();
    view.sizes[0] = count;
    if (data != nullptr) view.data += first * (sizes[0] == 0 ? 0 : num_bytes() / sizes[0]);
    return view;
  }

  /// The same values with other sizes and the same number of elements.
  [[nodiscard]] Tensor reshaped(Sizes shape) const {
    assert(shape.num_elements() == num_elements());
    Tensor view = *this;
    view.sizes = shape;
    return view;
  }
  [[nodiscard]] Tensor flat() const { return reshaped({num_elements()}); }

  /// `place`: float32 [1].
  [[nodiscard]] Tensor with_amax(const Tensor& place) const {
    Tensor view = *this;
    view.has_amax = true;
    view.amax = place.data;
    return view;
  }
  [[nodiscard]] Tensor without_amax() const { return {data, dtype, sizes}; }
  [[nodiscard]] Tensor place_of_amax() const { return has_amax ? Tensor(amax, DType::float32, {1}) : Tensor(); }
};

/// Whether some byte belongs to both.
[[nodiscard]] bool overlap(const Tensor& a, const Tensor& b);

}  // namespace echelon
