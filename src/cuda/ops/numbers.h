// A tensor's values as a kernel takes them. (Without fmt, whose headers CUDA's compiler does not take.)
#pragma once

#include "cuda/device/packs.h"
#include "cuda/device/status.h"
#include "tensor/tensor.h"

namespace echelon::cuda {

/// The values as the device's type of T; T must be the tensor's format.
template <class T>
[[nodiscard]] on_device<T>* numbers(const Tensor& x) {
  assert(dtype_of<T> == x.dtype || x.data == nullptr);
  return reinterpret_cast<on_device<T>*>(x.data);
}

/// f(T{}) with the T of a dtype that operations compute with.
template <class F>
void visit_numbers(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::float16: return f(float16{});
    case DType::int32:
    case DType::int16: break;
  }
  no_kernel_for(dtype);
}

/// f(T{}, G{}) with the T of activations and the G of a gradient of a weight: T or the type of its sums.
template <class F>
void visit_numbers_and_gradient(DType dtype, DType gradient, F&& f) {
  visit_numbers(dtype, [&]<class T>(T) {
    if (gradient == dtype) return f(T{}, T{});
    f(T{}, Wide<on_device<T>>{});
  });
}

/// f(the number of neighbouring numbers of type T that a thread takes at once, as an integral_constant): 16 bytes where
/// every row of `D` starts at a multiple of that, else one.
template <class T, class F>
void visit_row_width(std::int64_t D, F&& f) {
  if (D % pack_size<T> == 0)
    f(std::integral_constant<int, pack_size<T>>());
  else
    f(std::integral_constant<int, 1>());
}

}  // namespace echelon::cuda
