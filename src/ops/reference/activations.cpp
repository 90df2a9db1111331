// GELU (Hendrycks and Gimpel 2016) and its approximation by tanh, SwiGLU and GeGLU (Shazeer 2020).
//
//     gelu(x) = x/2 (1 + erf(x / sqrt 2))      gelu'(x) = (1 + erf(x / sqrt 2))/2 + x exp(-x^2/2) / sqrt(2 pi)
//     gelu_tanh(x) = x/2 (1 + tanh u)          u = sqrt(2/pi) (x + 0.044715 x^3)
//     gelu_tanh'(x) = (1 + tanh u)/2 + x/2 (1 - tanh^2 u) u'
//     swiglu(g, u) = silu(g) u                 silu(g) = g sigmoid(g)
//     geglu(g, u) = gelu_tanh(g) u
//     silu'(g) = sigmoid(g) (1 + g (1 - sigmoid(g)))
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

#include <cmath>
#include <numbers>
#include <vector>

namespace echelon {
namespace {

template <class A>
inline const A gelu_slope = static_cast<A>(std::sqrt(2.0 / std::numbers::pi));
template <class A>
inline constexpr A gelu_cubic = static_cast<A>(0.044715);

template <class A>
A normal_distribution(A x) {
  return std::erfc(-x / std::numbers::sqrt2_v<A>) / 2;
}

template <class A>
A gelu_of(A x, GeluKind kind = GeluKind::tanh) {
  if (kind == GeluKind::erf) return x * normal_distribution(x);
  const A u = gelu_slope<A> * (x + gelu_cubic<A> * x * x * x);
  return x / 2 * (1 + std::tanh(u));
}

template <class A>
A gelu_derivative(A x, GeluKind kind = GeluKind::tanh) {
  if (kind == GeluKind::erf)
    return normal_distribution(x) + x * std::exp(-x * x / 2) * std::numbers::inv_sqrtpi_v<A> / std::numbers::sqrt2_v<A>;
  const A tanh = std::tanh(gelu_slope<A> * (x + gelu_cubic<A> * x * x * x));
  const A du = gelu_slope<A> * (1 + 3 * gelu_cubic<A> * x * x);
  return (1 + tanh) / 2 + x / 2 * (1 - tanh * tanh) * du;
}

template <class A>
A sigmoid(A x) {
  return 1 / (1 + std::exp(-x));
}

template <class A>
A gate_of(A g, GateKind kind) {
  return kind == GateKind::silu ? g * sigmoid(g) : gelu_of(g);
}

template <class A>
A gate_derivative(A g, GateKind kind) {
  return kind == GateKind::silu ? sigmoid(g) * (1 + g * (1 - sigmoid(g))) : gelu_derivative(g);
}

}  // namespace

void ReferenceOps::compute(const GeluArgs& args) {
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    const std::int64_t D = args.x.size(-1);
    for (std::int64_t i = 0; i < args.x.num_elements(); ++i) {
      const A bias = args.bias.exists() ? to<A>(args.bias.as<T>()[i % D]) : A{0};
      args.y.as<T>()[i] = to<T>(gelu_of(to<A>(args.x.as<T>()[i]) + bias, args.kind));
    }
  });
}

void ReferenceOps::compute(const GeluBackwardArgs& args) {
  visit_pair(args.x.dtype, args.dbias.exists() ? args.dbias.dtype : args.x.dtype, [&](auto t, auto g) {
    using T = decltype(t);
    using G = decltype(g);
    using A = Accumulate<T>;
    const std::int64_t D = args.x.size(-1);
    std::vector<A> dbias(static_cast<std::size_t>(D));
    for (std::int64_t i = 0; i < args.x.num_elements(); ++i) {
      const A dy = to<A>(args.dy.as<T>()[i]),
              x = to<A>(args.x.as<T>()[i]) + (args.bias.exists() ? to<A>(args.bias.as<T>()[i % D]) : A{0});
      const A dx = dy * gelu_derivative(x, args.kind);
      dbias[static_cast<std::size_t>(i % D)] += dx;
      args.dx.as<T>()[i] = to<T>(dx);
      if (args.y.exists()) args.y.as<T>()[i] = to<T>(gelu_of(x, args.kind));
    }
    if (!args.dbias.exists()) return;
    for (std::int64_t d = 0; d < D; ++d)
      args.dbias.as<G>()[d] = to<G>(to<A>(args.dbias.as<G>()[d]) + dbias[static_cast<std::size_t>(d)]);
  });
}

void ReferenceOps::compute(const SwigluArgs& args) {
  visit_float(args.y.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t i = 0; i < args.y.num_elements(); ++i) {
      const A g = to<A>(args.gate.as<T>()[i]);
      args.y.as<T>()[i] = to<T>(gate_of(g, args.kind) * to<A>(args.up.as<T>()[i]));
    }
  });
}

void ReferenceOps::compute(const SwigluBackwardArgs& args) {
  visit_float(args.dy.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t i = 0; i < args.dy.num_elements(); ++i) {
      const A g = to<A>(args.gate.as<T>()[i]), u = to<A>(args.up.as<T>()[i]), d = to<A>(args.dy.as<T>()[i]),
              gated = gate_of(g, args.kind);
      args.dgate.as<T>()[i] = to<T>(d * u * gate_derivative(g, args.kind));
      args.dup.as<T>()[i] = to<T>(d * gated);
      if (args.y.exists()) args.y.as<T>()[i] = to<T>(gated * u);
    }
  });
}

}  // namespace echelon
