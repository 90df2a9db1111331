// GELU and SwiGLU (formulas: ops/reference/activations.cpp). With s = sigmoid(2u) = (1 + tanh u)/2, which needs one exp and loses nothing for negative x:
//   gelu(x) = x s        gelu'(x) = s + 2 x s (1 - s) u'
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/activations.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/check.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/parallel.h"

#include <cmath>
#include <numbers>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

template <class A>
struct Gelu {
  static constexpr Tag<A> d{};
  static constexpr double two_slopes = 2 * 0.7978845608028653558798921198687;  // 2 sqrt(2 / pi)
  static constexpr double cubic = 0.044715;

  static HWY_INLINE Vec<A> s(Vec<A> x) {
    const auto inner = hn::MulAdd(hn::Mul(hn::Set(d, static_cast<A>(cubic)), hn::Mul(x, x)), x, x);
    return sigmoid<A>(hn::Mul(hn::Set(d, static_cast<A>(two_slopes)), inner));
  }
  static HWY_INLINE Vec<A> derivative(Vec<A> x) {
    const auto one = hn::Set(d, A{1}), s_x = s(x);
    const auto two_du = hn::Mul(hn::Set(d, static_cast<A>(two_slopes)), hn::MulAdd(hn::Set(d, static_cast<A>(3 * cubic)), hn::Mul(x, x), one));
    return hn::MulAdd(hn::Mul(hn::Mul(x, s_x), hn::Sub(one, s_x)), two_du, s_x);
  }
};

/// kernel(lanes, i) over all elements, in vectors of T's sums.
template <class T, class Kernel>
HWY_INLINE void for_elements(std::int64_t count, int num_threads, Kernel kernel) {
  divide({count, 8, 64, num_threads}, [=](std::int64_t first, std::int64_t last) HWY_ATTR { for_lanes<Accumulate<T>>(first, last, kernel); });
}

template <class T>
void gelu_elements(const Tensor& y_tensor, const Tensor& x_tensor, int num_threads) {
  T* y = y_tensor.as<T>();
  const T* x = x_tensor.as<T>();
  for_elements<T>(x_tensor.num_elements(), num_threads, [=](auto lanes, std::int64_t i) HWY_ATTR {
    const auto x_i = lanes.load(x + i);
    lanes.store(hn::Mul(x_i, Gelu<Accumulate<T>>::s(x_i)), y + i);
  });
}

template <class T>
void gelu_backward_elements(const Tensor& dx_tensor, const Tensor& dy_tensor, const Tensor& x_tensor, int num_threads) {
  T* dx = dx_tensor.as<T>();
  const T *dy = dy_tensor.as<T>(), *x = x_tensor.as<T>();
  for_elements<T>(x_tensor.num_elements(), num_threads, [=](auto lanes, std::int64_t i) HWY_ATTR {
    lanes.store(hn::Mul(lanes.load(dy + i), Gelu<Accumulate<T>>::derivative(lanes.load(x + i))), dx + i);
  });
}

template <class T>
void swiglu_elements(const Tensor& y_tensor, const Tensor& gate_tensor, const Tensor& up_tensor, int num_threads) {
  T* y = y_tensor.as<T>();
  const T *gate = gate_tensor.as<T>(), *up = up_tensor.as<T>();
  for_elements<T>(y_tensor.num_elements(), num_threads, [=](auto lanes, std::int64_t i) HWY_ATTR {
    const auto g = lanes.load(gate + i);
    lanes.store(hn::Mul(hn::Mul(g, sigmoid<Accumulate<T>>(g)), lanes.load(up + i)), y + i);
  });
}

struct SwigluBackward {
  Tensor dgate, dup, dy, gate, up;
};

template <class T>
void swiglu_backward_elements(const SwigluBackward& args, int num_threads) {
  using A = Accumulate<T>;
  T *dgate = args.dgate.as<T>(), *dup = args.dup.as<T>();
  const T *dy = args.dy.as<T>(), *gate = args.gate.as<T>(), *up = args.up.as<T>();
  for_elements<T>(args.dy.num_elements(), num_threads, [=](auto lanes, std::int64_t i) HWY_ATTR {
    const auto one = hn::Set(Tag<A>(), A{1});
    const auto g = lanes.load(gate + i), u = lanes.load(up + i), dy_i = lanes.load(dy + i), s = sigmoid<A>(g);
    const auto silu_derivative = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
    lanes.store(hn::Mul(hn::Mul(dy_i, u), silu_derivative), dgate + i);
    lanes.store(hn::Mul(dy_i, hn::Mul(g, s)), dup + i);
  });
}

void GeluForward(const Tensor& y, const Tensor& x, int num_threads) {
  visit_float(x.dtype, [&](auto t) { gelu_elements<decltype(t)>(y, x, num_threads); });
}
void GeluBackward(const Tensor& dx, const Tensor& dy, const Tensor& x, int num_threads) {
  visit_float(x.dtype, [&](auto t) { gelu_backward_elements<decltype(t)>(dx, dy, x, num_threads); });
}
void SwigluForward(const Tensor& y, const Tensor& gate, const Tensor& up, int num_threads) {
  visit_float(y.dtype, [&](auto t) { swiglu_elements<decltype(t)>(y, gate, up, num_threads); });
}
void SwigluGradients(const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate, const Tensor& up, int num_threads) {
  visit_float(dy.dtype, [&](auto t) { swiglu_backward_elements<decltype(t)>({dgate, dup, dy, gate, up}, num_threads); });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(GeluForward);
HWY_EXPORT(GeluBackward);
HWY_EXPORT(SwigluForward);
HWY_EXPORT(SwigluGradients);

void CpuOps::gelu(Tensor y, Tensor x) {
  check_gelu(y, x);
  HWY_DYNAMIC_DISPATCH(GeluForward)(y, x, num_threads_);
}

void CpuOps::gelu_backward(Tensor dx, Tensor dy, Tensor x) {
  check_gelu_backward(dx, dy, x);
  HWY_DYNAMIC_DISPATCH(GeluBackward)(dx, dy, x, num_threads_);
}

void CpuOps::swiglu(Tensor y, Tensor gate, Tensor up) {
  check_swiglu(y, gate, up);
  HWY_DYNAMIC_DISPATCH(SwigluForward)(y, gate, up, num_threads_);
}

void CpuOps::swiglu_backward(Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
  check_swiglu_backward(dgate, dup, dy, gate, up);
  HWY_DYNAMIC_DISPATCH(SwigluGradients)(dgate, dup, dy, gate, up, num_threads_);
}

}  // namespace echelon
#endif
