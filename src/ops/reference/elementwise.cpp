// Biases, sums, copies, and the sum of squares for the norm of the gradients.
#include "ops/check.h"
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

#include <cstring>

namespace echelon {

void ReferenceOps::add_bias(Tensor y, Tensor bias) {
  check_add_bias(y, bias);
  visit_float(y.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    const std::int64_t D = y.size(-1);
    for (std::int64_t i = 0; i < y.num_elements(); ++i)
      y.as<T>()[i] = to<T>(to<A>(y.as<T>()[i]) + to<A>(bias.as<T>()[i % D]));
  });
}

void ReferenceOps::bias_backward(Tensor dy, Tensor dbias) {
  check_bias_backward(dy, dbias);
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

void ReferenceOps::add(Tensor out, Tensor a, Tensor b) {
  check_add(out, a, b);
  visit_addends(a.dtype, b.dtype, [&](auto t, auto u) {
    using T = decltype(t);
    using U = decltype(u);
    using A = Accumulate<T>;
    for (std::int64_t i = 0; i < out.num_elements(); ++i)
      out.as<T>()[i] = to<T>(to<A>(a.as<T>()[i]) + to<A>(b.as<U>()[i]));
  });
}

void ReferenceOps::copy(Tensor out, Tensor x) {
  check_copy(out, x);
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

void ReferenceOps::fill(Tensor out, double value) {
  check_fill(out);
  const auto fill_as = [&]<class T>(T number) { std::fill_n(out.as<T>(), out.num_elements(), number); };
  if (out.dtype == DType::int32) return fill_as(static_cast<std::int32_t>(value));
  if (out.dtype == DType::int16) return fill_as(static_cast<std::int16_t>(value));
  visit_float(out.dtype, [&](auto t) { fill_as(to<decltype(t)>(value)); });
}

void ReferenceOps::scale(Tensor x, double factor) {
  check_scale(x);
  visit_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t i = 0; i < x.num_elements(); ++i)
      x.as<T>()[i] = to<T>(to<A>(x.as<T>()[i]) * static_cast<A>(factor));
  });
}

void ReferenceOps::sum_of_squares(Tensor x, Tensor sum) {
  check_sum_of_squares(x, sum);
  visit_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    double squares = 0;
    for (std::int64_t i = 0; i < x.num_elements(); ++i) squares += to<double>(x.as<T>()[i]) * to<double>(x.as<T>()[i]);
    sum.as<double>()[0] += squares;
  });
}

}  // namespace echelon
