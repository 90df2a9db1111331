// LayerNorm and RMSNorm with xhat = (x - mean) rstd and g = dy w:
//     y  = xhat w + b
//     dx = rstd (g - mean(g) - xhat mean(g xhat))        RMSNorm: mean = 0, and without the term mean(g)
//     dw += sum over rows of dy xhat,  db += sum over rows of dy
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

#include <cmath>

namespace echelon {
namespace {

std::int64_t rows_of(const Tensor& x) { return x.size(-1) == 0 ? 0 : x.num_elements() / x.size(-1); }

template <class T, class A = Accumulate<T>>
void add_residual(const Tensor& x, const Tensor& residual) {
  if (!residual.exists()) return;
  for (std::int64_t i = 0; i < x.num_elements(); ++i)
    x.as<T>()[i] = to<T>(to<A>(x.as<T>()[i]) + to<A>(residual.as<T>()[i]));
}

/// The gradient that bypasses the norm; 0 without a residual.
template <class T, class A = Accumulate<T>>
A past(const Tensor& dresidual, std::int64_t i) {
  return dresidual.exists() ? to<A>(dresidual.as<T>()[i]) : A{0};
}

template <class T, class A = Accumulate<T>>
void layer_norm_rows(const LayerNormArgs& args) {
  const std::int64_t D = args.x.size(-1);
  add_residual<T>(args.x, args.residual);
  for (std::int64_t n = 0; n < rows_of(args.x); ++n) {
    const T* x = args.x.as<T>() + n * D;
    A mean = 0, variance = 0;
    for (std::int64_t d = 0; d < D; ++d) mean += to<A>(x[d]);
    mean /= static_cast<A>(D);
    for (std::int64_t d = 0; d < D; ++d) variance += (to<A>(x[d]) - mean) * (to<A>(x[d]) - mean);
    variance /= static_cast<A>(D);
    const A rstd = A{1} / std::sqrt(variance + static_cast<A>(args.eps));
    args.mean.as<A>()[n] = mean;
    args.rstd.as<A>()[n] = rstd;
    for (std::int64_t d = 0; d < D; ++d)
      args.y.as<T>()[n * D + d] =
          to<T>((to<A>(x[d]) - mean) * rstd * to<A>(args.w.as<T>()[d]) + to<A>(args.b.as<T>()[d]));
  }
}

template <class T, class A = Accumulate<T>>
void layer_norm_dx(const LayerNormBackwardInputArgs& args) {
  const std::int64_t D = args.x.size(-1);
  for (std::int64_t n = 0; n < rows_of(args.x); ++n) {
    const A mean = args.mean.as<A>()[n], rstd = args.rstd.as<A>()[n];
    const auto xhat = [&](std::int64_t d) { return (to<A>(args.x.as<T>()[n * D + d]) - mean) * rstd; };
    const auto g = [&](std::int64_t d) { return to<A>(args.dy.as<T>()[n * D + d]) * to<A>(args.w.as<T>()[d]); };
    A mean_g = 0, mean_g_xhat = 0;
    for (std::int64_t d = 0; d < D; ++d) mean_g += g(d);
    for (std::int64_t d = 0; d < D; ++d) mean_g_xhat += g(d) * xhat(d);
    mean_g /= static_cast<A>(D);
    mean_g_xhat /= static_cast<A>(D);
    for (std::int64_t d = 0; d < D; ++d)
      args.dx.as<T>()[n * D + d] =
          to<T>(rstd * (g(d) - mean_g - xhat(d) * mean_g_xhat) + past<T>(args.dresidual, n * D + d));
  }
}

template <class T, class G, class A = Accumulate<T>>
void layer_norm_dw(const LayerNormBackwardWeightArgs& args) {
  const std::int64_t D = args.x.size(-1);
  for (std::int64_t d = 0; d < D; ++d) {
    A dw = 0, db = 0;
    for (std::int64_t n = 0; n < rows_of(args.x); ++n) {
      const A dy = to<A>(args.dy.as<T>()[n * D + d]);
      dw += dy * (to<A>(args.x.as<T>()[n * D + d]) - args.mean.as<A>()[n]) * args.rstd.as<A>()[n];
      db += dy;
    }
    args.dw.as<G>()[d] = to<G>(to<A>(args.dw.as<G>()[d]) + dw);
    args.db.as<G>()[d] = to<G>(to<A>(args.db.as<G>()[d]) + db);
  }
}

template <class T, class A = Accumulate<T>>
void rms_norm_rows(const RmsNormArgs& args) {
  const std::int64_t D = args.x.size(-1);
  add_residual<T>(args.x, args.residual);
  for (std::int64_t n = 0; n < rows_of(args.x); ++n) {
    const T* x = args.x.as<T>() + n * D;
    A squares = 0;
    for (std::int64_t d = 0; d < D; ++d) squares += to<A>(x[d]) * to<A>(x[d]);
    if (args.squares.exists()) squares = args.squares.as<A>()[n];
    const std::int64_t width = args.squares.exists() ? args.width : D;
    const A rstd = A{1} / std::sqrt(squares / static_cast<A>(width) + static_cast<A>(args.eps));
    args.rstd.as<A>()[n] = rstd;
    const auto xhat = [&](std::int64_t d) {
      const A value = to<A>(x[d]) * rstd;
      return args.rounds_before_gain ? to<A>(to<T>(value)) : value;
    };
    for (std::int64_t d = 0; d < D; ++d)
      args.y.as<T>()[n * D + d] = to<T>(xhat(d) * (static_cast<A>(args.gain_offset) + to<A>(args.w.as<T>()[d])));
  }
}

template <class T, class A = Accumulate<T>>
void rms_norm_dx(const RmsNormBackwardInputArgs& args) {
  const std::int64_t D = args.x.size(-1);
  for (std::int64_t n = 0; n < rows_of(args.x); ++n) {
    const A rstd = args.rstd.as<A>()[n];
    const auto xhat = [&](std::int64_t d) { return to<A>(args.x.as<T>()[n * D + d]) * rstd; };
    const auto g = [&](std::int64_t d) {
      return to<A>(args.dy.as<T>()[n * D + d]) * (static_cast<A>(args.gain_offset) + to<A>(args.w.as<T>()[d]));
    };
    A mean_g_xhat = 0;
    for (std::int64_t d = 0; d < D; ++d) mean_g_xhat += g(d) * xhat(d);
    if (args.products.exists()) mean_g_xhat = args.products.as<A>()[n] * rstd;
    mean_g_xhat /= static_cast<A>(args.products.exists() ? args.width : D);
    for (std::int64_t d = 0; d < D; ++d)
      args.dx.as<T>()[n * D + d] = to<T>(rstd * (g(d) - xhat(d) * mean_g_xhat) + past<T>(args.dresidual, n * D + d));
  }
}

template <class T, class G, class A = Accumulate<T>>
void rms_norm_dw(const RmsNormBackwardWeightArgs& args) {
  const std::int64_t D = args.x.size(-1);
  for (std::int64_t d = 0; d < D; ++d) {
    A dw = 0;
    for (std::int64_t n = 0; n < rows_of(args.x); ++n)
      dw += to<A>(args.dy.as<T>()[n * D + d]) * to<A>(args.x.as<T>()[n * D + d]) * args.rstd.as<A>()[n];
    args.dw.as<G>()[d] = to<G>(to<A>(args.dw.as<G>()[d]) + dw);
  }
}

}  // namespace

void ReferenceOps::compute(const LayerNormArgs& args) {
  visit_float(args.x.dtype, [&](auto t) { layer_norm_rows<decltype(t)>(args); });
}

void ReferenceOps::compute(const LayerNormBackwardInputArgs& args) {
  visit_float(args.x.dtype, [&](auto t) { layer_norm_dx<decltype(t)>(args); });
}

void ReferenceOps::compute(const LayerNormBackwardWeightArgs& args) {
  visit_pair(args.x.dtype, args.dw.dtype, [&](auto t, auto g) { layer_norm_dw<decltype(t), decltype(g)>(args); });
}

void ReferenceOps::compute(const RowProductsArgs& args) {
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    const std::int64_t D = args.x.size(-1);
    for (std::int64_t n = 0; n < rows_of(args.x); ++n) {
      A sum = 0;
      for (std::int64_t d = 0; d < D; ++d) {
        const A gain = args.w.exists() ? static_cast<A>(args.gain_offset) + to<A>(args.w.as<T>()[d]) : A{1};
        sum += to<A>(args.x.as<T>()[n * D + d]) * to<A>(args.y.as<T>()[n * D + d]) * gain;
      }
      args.sums.as<A>()[n] = sum;
    }
  });
}

void ReferenceOps::compute(const RmsNormArgs& args) {
  visit_float(args.x.dtype, [&](auto t) { rms_norm_rows<decltype(t)>(args); });
}

void ReferenceOps::compute(const RmsNormBackwardInputArgs& args) {
  visit_float(args.x.dtype, [&](auto t) { rms_norm_dx<decltype(t)>(args); });
}

void ReferenceOps::compute(const RmsNormBackwardWeightArgs& args) {
  visit_pair(args.x.dtype, args.dw.dtype, [&](auto t, auto g) { rms_norm_dw<decltype(t), decltype(g)>(args); });
}

void ReferenceOps::compute(const LayerNormBackwardArgs& args) {
  layer_norm_backward_weight(
      {.dy = args.dy, .x = args.x, .mean = args.mean, .rstd = args.rstd, .dw = args.dw, .db = args.db});
  layer_norm_backward_input({.dy = args.dy,
                             .x = args.x,
                             .w = args.w,
                             .mean = args.mean,
                             .rstd = args.rstd,
                             .dx = args.dx,
                             .dresidual = args.dresidual});
}

void ReferenceOps::compute(const RmsNormBackwardArgs& args) {
  rms_norm_backward_weight({.dy = args.dy, .x = args.x, .rstd = args.rstd, .dw = args.dw});
  rms_norm_backward_input({.dy = args.dy,
                           .x = args.x,
                           .w = args.w,
                           .rstd = args.rstd,
                           .dx = args.dx,
                           .dresidual = args.dresidual,
                           .gain_offset = args.gain_offset});
}

}  // namespace echelon
