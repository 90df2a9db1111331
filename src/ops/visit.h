// From a dtype known at run time to a type known at compile time.
#pragma once

#include "base/error.h"
#include "tensor/dtype.h"

#include <type_traits>

namespace echelon {

/// The type in which sums over T are computed: the type of accumulate_dtype.
template <class T>
using Accumulate = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// f(T{}) with the T of a dtype that operations compute with.
template <class F>
void visit_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::float16: return f(float16{});
    case DType::int32:
    case DType::int16: break;
  }
  throw Failure(fmt::format("no operation computes with {}", name_of(dtype)));
}

/// f(T{}, G{}) with the T of the activations and the G of a gradient of a weight or a matmul: T or Accumulate<T>.
template <class F>
void visit_pair(DType activations, DType gradients, F&& f) {
  visit_float(activations, [&](auto t) {
    using A = Accumulate<decltype(t)>;
    if (gradients == activations) return f(t, t);
    if (gradients == dtype_of<A>) return f(t, A{});
    throw Failure(fmt::format("no operation on {} sums into {}", name_of(activations), name_of(gradients)));
  });
}

/// f(M{}) with the type of AdamW's moments next to master weights of type A: A, or bfloat16 with float.
template <class A, class F>
void visit_moment(DType moment, F&& f) {
  if constexpr (std::is_same_v<A, float>) {
    if (moment == DType::bfloat16) return f(bfloat16{});
  }
  f(A{});
}

/// f(T{}, U{}) with the types of two values whose sums have one type: the same type, or float32 and a 16-bit type.
template <class F>
void visit_addends(DType a, DType b, F&& f) {
  visit_float(a, [&](auto t) {
    using T = decltype(t);
    if (b == a) return f(t, t);
    if constexpr (std::is_same_v<T, float>) {
      if (b == DType::bfloat16) return f(t, bfloat16{});
      if (b == DType::float16) return f(t, float16{});
    }
    if constexpr (is_half<T>) {
      if (b == DType::float32) return f(t, float{});
    }
    throw Failure(fmt::format("no operation adds {} to {}", name_of(b), name_of(a)));
  });
}

}  // namespace echelon
