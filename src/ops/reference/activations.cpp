// gelu(x) = x/2 (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3)         (Hendrycks and Gimpel 2016, the tanh approximation)
// gelu'(x) = (1 + tanh u)/2 + x/2 (1 - tanh^2 u) u'
// swiglu(g, u) = silu(g) u with silu(g) = g sigmoid(g), silu'(g) = sigmoid(g) (1 + g (1 - sigmoid(g)))     (Shazeer 2020)
#include "ops/check.h"
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

#include <cmath>
#include <numbers>

namespace echelon {
namespace {

template <class A>
inline const A gelu_slope = static_cast<A>(std::sqrt(2.0 / std::numbers::pi));
template <class A>
inline constexpr A gelu_cubic = static_cast<A>(0.044715);

template <class A>
A gelu_of(A x) {
  const A u = gelu_slope<A> * (x + gelu_cubic<A> * x * x * x);
  return x / 2 * (1 + std::tanh(u));
}

template <class A>
A gelu_derivative(A x) {
  const A tanh = std::tanh(gelu_slope<A> * (x + gelu_cubic<A> * x * x * x));
  const A du = gelu_slope<A> * (1 + 3 * gelu_cubic<A> * x * x);
  return (1 + tanh) / 2 + x / 2 * (1 - tanh * tanh) * du;
}

template <class A>
A sigmoid(A x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace

void ReferenceOps::gelu(Tensor y, Tensor x) {
  check_gelu(y, x);
  visit_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    for (std::int64_t i = 0; i < x.num_elements(); ++i) y.as<T>()[i] = to<T>(gelu_of(to<Accumulate<T>>(x.as<T>()[i])));
  });
}

void ReferenceOps::gelu_backward(Tensor dx, Tensor dy, Tensor x) {
  check_gelu_backward(dx, dy, x);
  visit_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t i = 0; i < x.num_elements(); ++i) dx.as<T>()[i] = to<T>(to<A>(dy.as<T>()[i]) * gelu_derivative(to<A>(x.as<T>()[i])));
  });
}

void ReferenceOps::swiglu(Tensor y, Tensor gate, Tensor up) {
  check_swiglu(y, gate, up);
  visit_float(y.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t i = 0; i < y.num_elements(); ++i) {
      const A g = to<A>(gate.as<T>()[i]);
      y.as<T>()[i] = to<T>(g * sigmoid(g) * to<A>(up.as<T>()[i]));
    }
  });
}

void ReferenceOps::swiglu_backward(Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
  check_swiglu_backward(dgate, dup, dy, gate, up);
  visit_float(dy.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t i = 0; i < dy.num_elements(); ++i) {
      const A g = to<A>(gate.as<T>()[i]), u = to<A>(up.as<T>()[i]), d = to<A>(dy.as<T>()[i]), s = sigmoid(g);
      dgate.as<T>()[i] = to<T>(d * u * s * (1 + g * (1 - s)));
      dup.as<T>()[i] = to<T>(d * g * s);
    }
  });
}

}  // namespace echelon
