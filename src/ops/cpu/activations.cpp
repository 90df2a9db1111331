// GELU, SwiGLU and GeGLU (formulas: ops/reference/activations.cpp). Each is x s(x):
//     silu         s = sigmoid(x)
//     gelu_tanh    s = sigmoid(2u) = (1 + tanh u)/2, which needs one exp and loses nothing for negative x;
//                  gelu_tanh'(x) = s + 2 x s (1 - s) u'
//     gelu         s = Phi(x)
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/activations.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/normal-inl.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/row_blocks.h"
#include "ops/cpu/scratch.h"

#include <cmath>
#include <numbers>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

template <class A>
struct GeluTanh {
  static constexpr Tag<A> d{};
  static constexpr double two_slopes = 2 * 0.7978845608028653558798921198687;  // 2 sqrt(2 / pi)
  static constexpr double cubic = 0.044715;

  static HWY_INLINE Vec<A> s(Vec<A> x) {
    const auto inner = hn::MulAdd(hn::Mul(hn::Set(d, static_cast<A>(cubic)), hn::Mul(x, x)), x, x);
    return sigmoid<A>(hn::Mul(hn::Set(d, static_cast<A>(two_slopes)), inner));
  }
  /// Of an x whose s(x) is known.
  static HWY_INLINE Vec<A> derivative(Vec<A> x, Vec<A> s_x) {
    const auto one = hn::Set(d, A{1});
    const auto two_du = hn::Mul(hn::Set(d, static_cast<A>(two_slopes)),
                                hn::MulAdd(hn::Set(d, static_cast<A>(3 * cubic)), hn::Mul(x, x), one));
    return hn::MulAdd(hn::Mul(hn::Mul(x, s_x), hn::Sub(one, s_x)), two_du, s_x);
  }
};

template <class A>
struct GeluErf {
  static HWY_INLINE Vec<A> s(Vec<A> x) { return normal_distribution<A>(x); }
  static HWY_INLINE Vec<A> derivative(Vec<A> x, Vec<A> s_x) { return hn::MulAdd(x, normal_density<A>(x), s_x); }
};

template <class A>
struct Silu {
  static HWY_INLINE Vec<A> s(Vec<A> x) { return sigmoid<A>(x); }
  static HWY_INLINE Vec<A> derivative(Vec<A> x, Vec<A> s_x) {
    const auto one = hn::Set(Tag<A>(), A{1});
    return hn::Mul(s_x, hn::MulAdd(x, hn::Sub(one, s_x), one));
  }
};

/// kernel(lanes, i) over all elements, in vectors of T's sums.
template <class T, class Kernel>
HWY_INLINE void for_elements(std::int64_t count, int num_threads, Kernel kernel) {
  divide({count, 8, 64, num_threads},
         [=](std::int64_t first, std::int64_t last) HWY_ATTR { for_lanes<Accumulate<T>>(first, last, kernel); });
}

/// x + bias, or x where there is none.
template <class A, class L, class T>
HWY_INLINE Vec<A> biased(L lanes, const T* x, const T* bias, std::int64_t i) {
  const auto x_i = lanes.load(x + i);
  return bias == nullptr ? x_i : hn::Add(x_i, lanes.load(bias + i));
}

template <class T, template <class> class Form>
void gelu_rows(const GeluArgs& args, int num_threads) {
  using A = Accumulate<T>;
  const std::int64_t D = args.x.size(-1), N = D == 0 ? 0 : args.x.num_elements() / D;
  const T* bias = args.bias.exists() ? args.bias.as<T>() : nullptr;
  divide({N, 8 * D, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t n = first; n < last; ++n) {
      const T* x = args.x.as<T>() + n * D;
      T* y = args.y.as<T>() + n * D;
      for_lanes<A>(0, D, [=](auto lanes, std::int64_t i) HWY_ATTR {
        const auto x_i = biased<A>(lanes, x, bias, i);
        lanes.store(hn::Mul(x_i, Form<A>::s(x_i)), y + i);
      });
    }
  });
}

/// One row of the gradient; sums (may be null) += dx.
template <class T, template <class> class Form>
HWY_INLINE void gelu_gradient(const GeluBackwardArgs& args, std::int64_t n, Accumulate<T>* sums) {
  using A = Accumulate<T>;
  const std::int64_t D = args.x.size(-1);
  const T *dy = args.dy.as<T>() + n * D, *x = args.x.as<T>() + n * D,
          *bias = args.bias.exists() ? args.bias.as<T>() : nullptr;
  T *dx = args.dx.as<T>() + n * D, *y = args.y.exists() ? args.y.as<T>() + n * D : nullptr;
  for_lanes<A>(0, D, [=](auto lanes, std::int64_t i) HWY_ATTR {
    const auto x_i = biased<A>(lanes, x, bias, i), s_i = Form<A>::s(x_i);
    const auto dx_i = hn::Mul(lanes.load(dy + i), Form<A>::derivative(x_i, s_i));
    lanes.store(dx_i, dx + i);
    if (y != nullptr) lanes.store(hn::Mul(x_i, s_i), y + i);
    if (sums != nullptr) lanes.store(hn::Add(lanes.load(sums + i), dx_i), sums + i);
  });
}

template <class T, class G, template <class> class Form>
void gelu_gradients(const GeluBackwardArgs& args, int num_threads) {
  using A = Accumulate<T>;
  const std::int64_t D = args.x.size(-1), N = D == 0 ? 0 : args.x.num_elements() / D;
  if (!args.dbias.exists()) {
    divide({N, 16 * D, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
      for (std::int64_t n = first; n < last; ++n) gelu_gradient<T, Form>(args, n, nullptr);
    });
    return;
  }
  const RowBlocks blocks(N);
  Scratch<A> scratch(blocks.count * D);
  A* sums = scratch.take(blocks.count * D);
  divide({blocks.count, 16 * D * blocks.rows_per_block, 1, num_threads},
         [&](std::int64_t first, std::int64_t last) HWY_ATTR {
           std::fill(sums + first * D, sums + last * D, A{0});
           for (std::int64_t block = first; block < last; ++block)
             for (std::int64_t n = blocks.first(block); n < blocks.last(block); ++n)
               gelu_gradient<T, Form>(args, n, sums + block * D);
         });
  add_block_sums<A>({sums, blocks.count, D, D}, args.dbias.as<G>());
}

template <class T, template <class> class Gate>
void swiglu_elements(const SwigluArgs& args, int num_threads) {
  T* y = args.y.as<T>();
  const T *gate = args.gate.as<T>(), *up = args.up.as<T>();
  for_elements<T>(args.y.num_elements(), num_threads, [=](auto lanes, std::int64_t i) HWY_ATTR {
    const auto g = lanes.load(gate + i);
    lanes.store(hn::Mul(hn::Mul(g, Gate<Accumulate<T>>::s(g)), lanes.load(up + i)), y + i);
  });
}

template <class T, template <class> class Gate>
void swiglu_backward_elements(const SwigluBackwardArgs& args, int num_threads) {
  using A = Accumulate<T>;
  T *dgate = args.dgate.as<T>(), *dup = args.dup.as<T>(), *y = args.y.exists() ? args.y.as<T>() : nullptr;
  const T *dy = args.dy.as<T>(), *gate = args.gate.as<T>(), *up = args.up.as<T>();
  for_elements<T>(args.dy.num_elements(), num_threads, [=](auto lanes, std::int64_t i) HWY_ATTR {
    const auto g = lanes.load(gate + i), u = lanes.load(up + i), dy_i = lanes.load(dy + i), s = Gate<A>::s(g);
    const auto gated = hn::Mul(g, s);
    lanes.store(hn::Mul(hn::Mul(dy_i, u), Gate<A>::derivative(g, s)), dgate + i);
    lanes.store(hn::Mul(dy_i, gated), dup + i);
    if (y != nullptr) lanes.store(hn::Mul(gated, u), y + i);
  });
}

void GeluForward(const GeluArgs& args, int num_threads) {
  visit_float(args.x.dtype, [&](auto t) {
    args.kind == GeluKind::tanh ? gelu_rows<decltype(t), GeluTanh>(args, num_threads)
                                : gelu_rows<decltype(t), GeluErf>(args, num_threads);
  });
}
void GeluGradients(const GeluBackwardArgs& args, int num_threads) {
  visit_pair(args.x.dtype, args.dbias.exists() ? args.dbias.dtype : args.x.dtype, [&](auto t, auto g) {
    args.kind == GeluKind::tanh ? gelu_gradients<decltype(t), decltype(g), GeluTanh>(args, num_threads)
                                : gelu_gradients<decltype(t), decltype(g), GeluErf>(args, num_threads);
  });
}
void SwigluForward(const SwigluArgs& args, int num_threads) {
  visit_float(args.y.dtype, [&](auto t) {
    args.kind == GateKind::silu ? swiglu_elements<decltype(t), Silu>(args, num_threads)
                                : swiglu_elements<decltype(t), GeluTanh>(args, num_threads);
  });
}
void SwigluGradients(const SwigluBackwardArgs& args, int num_threads) {
  visit_float(args.dy.dtype, [&](auto t) {
    args.kind == GateKind::silu ? swiglu_backward_elements<decltype(t), Silu>(args, num_threads)
                                : swiglu_backward_elements<decltype(t), GeluTanh>(args, num_threads);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(GeluForward);
HWY_EXPORT(GeluGradients);
HWY_EXPORT(SwigluForward);
HWY_EXPORT(SwigluGradients);

void CpuOps::compute(const GeluArgs& args) { HWY_DYNAMIC_DISPATCH(GeluForward)(args, num_threads_); }

void CpuOps::compute(const GeluBackwardArgs& args) { HWY_DYNAMIC_DISPATCH(GeluGradients)(args, num_threads_); }

void CpuOps::compute(const SwigluArgs& args) { HWY_DYNAMIC_DISPATCH(SwigluForward)(args, num_threads_); }

void CpuOps::compute(const SwigluBackwardArgs& args) { HWY_DYNAMIC_DISPATCH(SwigluGradients)(args, num_threads_); }

}  // namespace echelon
#endif
