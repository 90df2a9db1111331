// Biases, sums, copies, and the sum of squares for the norm of the gradients.
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

#include <cmath>
#include <cstring>

namespace echelon {

void ReferenceOps::compute(const AddBiasArgs& args) {
  const Tensor &y = args.y, &bias = args.bias;
  visit_float(y.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    const std::int64_t D = y.size(-1);
    for (std::int64_t i = 0; i < y.num_elements(); ++i)
      y.as<T>()[i] = to<T>(to<A>(y.as<T>()[i]) + to<A>(bias.as<T>()[i % D]));
  });
}

void ReferenceOps::compute(const BiasBackwardArgs& args) {
  const Tensor &dy = args.dy, &dbias = args.dbias;
  visit_pair(dy.dtype, dbias.dtype, [&](auto t, auto g) {
    using T = decltype(t);
    using G = decltype(g);
    using A = Accumulate<T>;
    const std::int64_t D = dy.size(-1);
    for (std::int64_t d = 0; d < D; ++d) {
      A sum = 0;
      for (std::int64_t i = d; i < dy.num_elements(); i += D) sum += to<A>(dy.as<T>()[i]);
      dbias.as<G>()[d] = to<G>(to<A>(dbias.as<G>()[d]) + sum);
    }
  });
}

void ReferenceOps::compute(const AddArgs& args) {
  const Tensor &out = args.out, &a = args.a, &b = args.b;
  visit_addends(a.dtype, b.dtype, [&](auto t, auto u) {
    using T = decltype(t);
    using U = decltype(u);
    using A = Accumulate<T>;
    for (std::int64_t i = 0; i < out.num_elements(); ++i)
      out.as<T>()[i] = to<T>(to<A>(a.as<T>()[i]) + to<A>(b.as<U>()[i]));
  });
}

void ReferenceOps::compute(const CopyArgs& args) {
  const Tensor &out = args.out, &x = args.x;
  if (out.dtype == x.dtype) {
    if (x.num_bytes() > 0) std::memmove(out.data, x.data, static_cast<std::size_t>(x.num_bytes()));
    return;
  }
  visit_float(x.dtype, [&](auto from) {
    visit_float(out.dtype, [&](auto into) {
      using From = decltype(from);
      using To = decltype(into);
      for (std::int64_t i = 0; i < x.num_elements(); ++i) out.as<To>()[i] = to<To>(x.as<From>()[i]);
    });
  });
}

void ReferenceOps::compute(const FillArgs& args) {
  const Tensor& out = args.out;
  const auto fill_as = [&]<class T>(T number) { std::fill_n(out.as<T>(), out.num_elements(), number); };
  if (out.dtype == DType::int32) return fill_as(static_cast<std::int32_t>(args.value));
  if (out.dtype == DType::int16) return fill_as(static_cast<std::int16_t>(args.value));
  visit_float(out.dtype, [&](auto t) { fill_as(to<decltype(t)>(args.value)); });
}

void ReferenceOps::compute(const ScaleArgs& args) {
  const Tensor& x = args.x;
  visit_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t i = 0; i < x.num_elements(); ++i)
      x.as<T>()[i] = to<T>(to<A>(x.as<T>()[i]) * static_cast<A>(args.factor));
  });
}

void ReferenceOps::compute(const SoftCapArgs& args) {
  const Tensor& x = args.x;
  visit_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    const A cap = static_cast<A>(args.cap);
    for (std::int64_t i = 0; i < x.num_elements(); ++i)
      x.as<T>()[i] = to<T>(cap * std::tanh(to<A>(x.as<T>()[i]) / cap));
  });
}

void ReferenceOps::compute(const SoftCapBackwardArgs& args) {
  visit_pair(args.dx.dtype, args.y.dtype, [&](auto t, auto l) {
    using T = decltype(t);
    using L = decltype(l);
    using A = Accumulate<T>;
    for (std::int64_t i = 0; i < args.dx.num_elements(); ++i) {
      const A tanh = to<A>(args.y.as<L>()[i]) / static_cast<A>(args.cap);
      args.dx.as<T>()[i] = to<T>(to<A>(args.dx.as<T>()[i]) * (1 - tanh * tanh));
    }
  });
}

void ReferenceOps::compute(const ClipArgs& args) {
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    const A limit = to<A>(to<T>(args.limit));
    for (std::int64_t i = 0; i < args.x.num_elements(); ++i) {
      T& x = args.x.as<T>()[i];
      if (std::abs(to<A>(x)) > limit) x = to<T>(std::copysign(limit, to<A>(x)));
    }
  });
}

void ReferenceOps::compute(const ClipBackwardArgs& args) {
  visit_float(args.dx.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    const A limit = to<A>(to<T>(args.limit));
    for (std::int64_t i = 0; i < args.dx.num_elements(); ++i)
      if (!(std::abs(to<A>(args.x.as<T>()[i])) < limit)) args.dx.as<T>()[i] = to<T>(0.0);
  });
}

void ReferenceOps::compute(const SumOfSquaresArgs& args) {
  const Tensor &x = args.x, &sum = args.sum;
  visit_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    double squares = 0;
    for (std::int64_t i = 0; i < x.num_elements(); ++i) squares += to<double>(x.as<T>()[i]) * to<double>(x.as<T>()[i]);
    sum.as<double>()[0] += squares;
  });
}

}  // namespace echelon
