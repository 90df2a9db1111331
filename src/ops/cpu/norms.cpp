// LayerNorm and RMSNorm, with xhat = (x - mean) rstd and g = dy w (formulas: ops/reference/norms.cpp). A row stays in
// the first cache over its two or three passes.
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/norms.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/row_blocks.h"
#include "ops/cpu/scratch.h"

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

/// for_row(n) for all rows of x.
template <class F>
HWY_INLINE void for_rows(const Tensor& x, int num_threads, F for_row) {
  const std::int64_t D = x.size(-1), N = D == 0 ? 0 : x.num_elements() / D;
  divide({N, D, 1, num_threads}, [=](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t n = first; n < last; ++n) for_row(n);
  });
}

/// Sum over a row of term(lanes, i); lanes beyond the row's end do not count.
template <class A, class Term>
HWY_INLINE A row_sum(std::int64_t D, Term term) {
  const auto zero = hn::Zero(Tag<A>());
  auto sum = zero;
  for_lanes<A>(0, D,
               [&](auto lanes, std::int64_t i) HWY_ATTR { sum = hn::Add(sum, lanes.valid_or(term(lanes, i), zero)); });
  return sum_of_lanes<A>(sum);
}

/// Row n of x += row n of the residual, if there is one.
template <class T>
HWY_INLINE void add_residual(const Tensor& x_tensor, const Tensor& residual_tensor, std::int64_t n) {
  if (!residual_tensor.exists()) return;
  const std::int64_t D = x_tensor.size(-1);
  T* x = x_tensor.as<T>() + n * D;
  const T* residual = residual_tensor.as<T>() + n * D;
  for_lanes<Accumulate<T>>(0, D, [=](auto lanes, std::int64_t i) HWY_ATTR {
    lanes.store(hn::Add(lanes.load(x + i), lanes.load(residual + i)), x + i);
  });
}

template <class T>
void layer_norm_rows(const LayerNormArgs& args, int num_threads) {
  using A = Accumulate<T>;
  const Tag<A> d;
  const std::int64_t D = args.x.size(-1);
  for_rows(args.x, num_threads, [&, D](std::int64_t n) HWY_ATTR {
    add_residual<T>(args.x, args.residual, n);
    const T *x = args.x.as<T>() + n * D, *w = args.w.as<T>(), *b = args.b.as<T>();
    T* y = args.y.as<T>() + n * D;
    const A mean =
        row_sum<A>(D, [=](auto lanes, std::int64_t i) HWY_ATTR { return lanes.load(x + i); }) / static_cast<A>(D);
    const auto means = hn::Set(d, mean);
    const A squares = row_sum<A>(D, [=](auto lanes, std::int64_t i) HWY_ATTR {
      const auto centred = hn::Sub(lanes.load(x + i), means);
      return hn::Mul(centred, centred);
    });
    const A rstd = A{1} / std::sqrt(squares / static_cast<A>(D) + static_cast<A>(args.eps));
    const auto rstds = hn::Set(d, rstd);
    args.mean.as<A>()[n] = mean;
    args.rstd.as<A>()[n] = rstd;
    for_lanes<A>(0, D, [=](auto lanes, std::int64_t i) HWY_ATTR {
      const auto xhat = hn::Mul(hn::Sub(lanes.load(x + i), means), rstds);
      lanes.store(hn::MulAdd(xhat, lanes.load(w + i), lanes.load(b + i)), y + i);
    });
  });
}

template <class T>
void rms_norm_rows(const RmsNormArgs& args, int num_threads) {
  using A = Accumulate<T>;
  const std::int64_t D = args.x.size(-1);
  for_rows(args.x, num_threads, [&, D](std::int64_t n) HWY_ATTR {
    add_residual<T>(args.x, args.residual, n);
    const T *x = args.x.as<T>() + n * D, *w = args.w.as<T>();
    T* y = args.y.as<T>() + n * D;
    const bool is_part = args.squares.exists();
    const A squares = is_part ? args.squares.as<A>()[n] : row_sum<A>(D, [=](auto lanes, std::int64_t i) HWY_ATTR {
      const auto v = lanes.load(x + i);
      return hn::Mul(v, v);
    });
    const A width = static_cast<A>(is_part ? args.width : D);
    const A rstd = A{1} / std::sqrt(squares / width + static_cast<A>(args.eps));
    const auto rstds = hn::Set(Tag<A>(), rstd), offset = hn::Set(Tag<A>(), static_cast<A>(args.gain_offset));
    args.rstd.as<A>()[n] = rstd;
    if (args.rounds_before_gain)
      for_lanes<A>(0, D, [=](auto lanes, std::int64_t i) HWY_ATTR {
        lanes.store(hn::Mul(lanes.load(x + i), rstds), y + i);
        lanes.store(hn::Mul(lanes.load(y + i), hn::Add(offset, lanes.load(w + i))), y + i);
      });
    else
      for_lanes<A>(0, D, [=](auto lanes, std::int64_t i) HWY_ATTR {
        lanes.store(hn::Mul(hn::Mul(lanes.load(x + i), rstds), hn::Add(offset, lanes.load(w + i))), y + i);
      });
  });
}

template <class T>
void row_products(const RowProductsArgs& args, int num_threads) {
  using A = Accumulate<T>;
  const std::int64_t D = args.x.size(-1);
  for_rows(args.x, num_threads, [&, D](std::int64_t n) HWY_ATTR {
    const T *x = args.x.as<T>() + n * D, *y = args.y.as<T>() + n * D, *w = args.w.exists() ? args.w.as<T>() : nullptr;
    const auto offset = hn::Set(Tag<A>(), static_cast<A>(args.gain_offset));
    args.sums.as<A>()[n] = row_sum<A>(D, [=](auto lanes, std::int64_t i) HWY_ATTR {
      const auto product = hn::Mul(lanes.load(x + i), lanes.load(y + i));
      return w == nullptr ? product : hn::Mul(product, hn::Add(offset, lanes.load(w + i)));
    });
  });
}

/// One row of the gradients; for RMSNorm mean is 0 and mean(g) is left out.
template <class T, bool centres>
struct RowGradient {
  using A = Accumulate<T>;
  const T *dy, *x, *w, *past;  // past: dresidual, or null
  T* dx;
  A mean, rstd, gain_offset;
  const A* product = nullptr;  // of the whole row of `width`, of which this is a part
  std::int64_t width = 0;

  template <class L>
  HWY_INLINE Vec<A> xhat(L lanes, std::int64_t i) const {
    const auto value = lanes.load(x + i);
    if constexpr (centres) return hn::Mul(hn::Sub(value, hn::Set(Tag<A>(), mean)), hn::Set(Tag<A>(), rstd));
    return hn::Mul(value, hn::Set(Tag<A>(), rstd));
  }
  template <class L>
  HWY_INLINE Vec<A> g(L lanes, std::int64_t i) const {
    const auto gain = lanes.load(w + i);
    if constexpr (centres) return hn::Mul(lanes.load(dy + i), gain);
    return hn::Mul(lanes.load(dy + i), hn::Add(hn::Set(Tag<A>(), gain_offset), gain));
  }
  /// dx; with dw, also dw += dy xhat and db += dy.
  template <bool with_weight>
  HWY_INLINE void write(std::int64_t D, A* dw, A* db) const {
    const Tag<A> d;
    auto sum_g = hn::Zero(d), sum_g_xhat = hn::Zero(d);
    for_lanes<A>(0, D, [&](auto lanes, std::int64_t i) HWY_ATTR {  // beyond the row's end g is zero
      const auto g_i = g(lanes, i);
      sum_g = hn::Add(sum_g, g_i);
      sum_g_xhat = hn::MulAdd(g_i, xhat(lanes, i), sum_g_xhat);
    });
    const auto mean_g = hn::Set(d, centres ? sum_of_lanes<A>(sum_g) / static_cast<A>(D) : A{0});
    const A of_row = product == nullptr ? sum_of_lanes<A>(sum_g_xhat) : *product * rstd;
    const auto mean_g_xhat = hn::Set(d, of_row / static_cast<A>(product == nullptr ? D : width));
    for_lanes<A>(0, D, [&](auto lanes, std::int64_t i) HWY_ATTR {
      const auto xhat_i = xhat(lanes, i), centred = hn::Sub(g(lanes, i), mean_g);
      if constexpr (with_weight) {
        const auto dy_i = lanes.load(dy + i);
        lanes.store(hn::MulAdd(dy_i, xhat_i, lanes.load(dw + i)), dw + i);
        if constexpr (centres) lanes.store(hn::Add(lanes.load(db + i), dy_i), db + i);
      }
      const auto dx_i = hn::Mul(hn::Set(d, rstd), hn::NegMulAdd(xhat_i, mean_g_xhat, centred));
      lanes.store(past == nullptr ? dx_i : hn::Add(dx_i, lanes.load(past + i)), dx + i);
    });
  }
};

/// RMSNorm's arguments come as LayerNorm's without mean, db (and with centres = false).
struct NormGradientArgs : LayerNormBackwardArgs {
  RmsNormBackwardInputArgs part = {};  // what RMSNorm alone has
};

template <class T, bool centres>
HWY_INLINE RowGradient<T, centres> row_gradient(const NormGradientArgs& args, std::int64_t n) {
  using A = Accumulate<T>;
  const std::int64_t D = args.x.size(-1);
  return {.dy = args.dy.as<T>() + n * D,
          .x = args.x.as<T>() + n * D,
          .w = args.w.as<T>(),
          .past = args.dresidual.exists() ? args.dresidual.as<T>() + n * D : nullptr,
          .dx = args.dx.as<T>() + n * D,
          .mean = centres ? args.mean.as<A>()[n] : A{0},
          .rstd = args.rstd.as<A>()[n],
          .gain_offset = static_cast<A>(args.part.gain_offset),
          .product = args.part.products.exists() ? args.part.products.as<A>() + n : nullptr,
          .width = args.part.width};
}

template <class T, bool centres>
void norm_dx(const NormGradientArgs& args, int num_threads) {
  for_rows(args.x, num_threads, [&](std::int64_t n) HWY_ATTR {
    row_gradient<T, centres>(args, n).template write<false>(args.x.size(-1), nullptr, nullptr);
  });
}

/// All gradients: a row stays in the first cache for both of its passes.
template <class T, class G, bool centres>
void norm_gradients(const NormGradientArgs& args, int num_threads) {
  using A = Accumulate<T>;
  const std::int64_t D = args.x.size(-1), N = D == 0 ? 0 : args.x.num_elements() / D;
  const RowBlocks blocks(N);
  Scratch<A> scratch(2 * blocks.count * D);
  A* sums = scratch.take(2 * blocks.count * D);  // of each block dw, then db
  divide({blocks.count, 4 * D * blocks.rows_per_block, 1, num_threads}, [&](std::int64_t first,
                                                                            std::int64_t last) HWY_ATTR {
    std::fill(sums + 2 * first * D, sums + 2 * last * D, A{0});
    for (std::int64_t block = first; block < last; ++block)
      for (std::int64_t n = blocks.first(block); n < blocks.last(block); ++n)
        row_gradient<T, centres>(args, n).template write<true>(D, sums + 2 * block * D, sums + (2 * block + 1) * D);
  });
  add_block_sums<A>({sums, blocks.count, D, 2 * D}, args.dw.as<G>());
  if constexpr (centres) add_block_sums<A>({sums + D, blocks.count, D, 2 * D}, args.db.as<G>());
}

/// dw += sums over the rows of dy xhat, and db += sums of dy; mean and db may be absent (RMSNorm). Threads take
/// columns.
template <class T, class G>
void norm_dw(const LayerNormBackwardWeightArgs& args, bool centres, int num_threads) {
  using A = Accumulate<T>;
  const Tag<A> d;
  const std::int64_t D = args.x.size(-1), N = D == 0 ? 0 : args.x.num_elements() / D;
  divide({D, N, 64, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    Scratch<A> scratch(2 * D);
    A *dw = scratch.take(D), *db = scratch.take(D);
    std::fill(dw + first, dw + last, A{0});
    std::fill(db + first, db + last, A{0});
    for (std::int64_t n = 0; n < N; ++n) {
      const T *dy = args.dy.as<T>() + n * D, *x = args.x.as<T>() + n * D;
      const auto mean = hn::Set(d, centres ? args.mean.as<A>()[n] : A{0}), rstd = hn::Set(d, args.rstd.as<A>()[n]);
      for_lanes<A>(first, last, [=](auto lanes, std::int64_t i) HWY_ATTR {
        const auto g = lanes.load(dy + i);
        lanes.store(hn::MulAdd(g, hn::Mul(hn::Sub(lanes.load(x + i), mean), rstd), lanes.load(dw + i)), dw + i);
        if (centres) lanes.store(hn::Add(lanes.load(db + i), g), db + i);
      });
    }
    G *dw_out = args.dw.as<G>(), *db_out = centres ? args.db.as<G>() : nullptr;
    for_lanes<A>(first, last, [=](auto lanes, std::int64_t i) HWY_ATTR {
      lanes.store(hn::Add(lanes.load(dw_out + i), lanes.load(dw + i)), dw_out + i);
      if (centres) lanes.store(hn::Add(lanes.load(db_out + i), lanes.load(db + i)), db_out + i);
    });
  });
}

void RowProducts(const RowProductsArgs& args, int num_threads) {
  visit_float(args.x.dtype, [&](auto t) { row_products<decltype(t)>(args, num_threads); });
}
void LayerNorm(const LayerNormArgs& args, int num_threads) {
  visit_float(args.x.dtype, [&](auto t) { layer_norm_rows<decltype(t)>(args, num_threads); });
}
void RmsNorm(const RmsNormArgs& args, int num_threads) {
  visit_float(args.x.dtype, [&](auto t) { rms_norm_rows<decltype(t)>(args, num_threads); });
}

// Gradients: of LayerNorm if it centres, else of RMSNorm, whose arguments come without mean and db.
void NormBackwardInput(const LayerNormBackwardArgs& of_layer_norm, const RmsNormBackwardInputArgs& part, bool centres,
                       int num_threads) {
  const NormGradientArgs args = {of_layer_norm, part};
  visit_float(args.x.dtype, [&](auto t) {
    centres ? norm_dx<decltype(t), true>(args, num_threads) : norm_dx<decltype(t), false>(args, num_threads);
  });
}
void NormBackwardWeight(const LayerNormBackwardWeightArgs& args, bool centres, int num_threads) {
  visit_pair(args.x.dtype, args.dw.dtype,
             [&](auto t, auto g) { norm_dw<decltype(t), decltype(g)>(args, centres, num_threads); });
}
void NormBackward(const LayerNormBackwardArgs& of_layer_norm, const RmsNormBackwardInputArgs& part, bool centres,
                  int num_threads) {
  const NormGradientArgs args = {of_layer_norm, part};
  visit_pair(args.x.dtype, args.dw.dtype, [&](auto t, auto g) {
    using T = decltype(t);
    using G = decltype(g);
    centres ? norm_gradients<T, G, true>(args, num_threads) : norm_gradients<T, G, false>(args, num_threads);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(RowProducts);
HWY_EXPORT(LayerNorm);
HWY_EXPORT(RmsNorm);
HWY_EXPORT(NormBackwardInput);
HWY_EXPORT(NormBackwardWeight);
HWY_EXPORT(NormBackward);

void CpuOps::compute(const LayerNormArgs& args) { HWY_DYNAMIC_DISPATCH(LayerNorm)(args, num_threads_); }

void CpuOps::compute(const LayerNormBackwardInputArgs& args) {
  HWY_DYNAMIC_DISPATCH(NormBackwardInput)
  ({.dy = args.dy,
    .x = args.x,
    .w = args.w,
    .mean = args.mean,
    .rstd = args.rstd,
    .dx = args.dx,
    .dw = {},
    .db = {},
    .dresidual = args.dresidual},
   {}, true, num_threads_);
}

void CpuOps::compute(const LayerNormBackwardWeightArgs& args) {
  HWY_DYNAMIC_DISPATCH(NormBackwardWeight)(args, true, num_threads_);
}

void CpuOps::compute(const LayerNormBackwardArgs& args) {
  HWY_DYNAMIC_DISPATCH(NormBackward)(args, {}, true, num_threads_);
}

void CpuOps::compute(const RowProductsArgs& args) { HWY_DYNAMIC_DISPATCH(RowProducts)(args, num_threads_); }

void CpuOps::compute(const RmsNormArgs& args) { HWY_DYNAMIC_DISPATCH(RmsNorm)(args, num_threads_); }

void CpuOps::compute(const RmsNormBackwardInputArgs& args) {
  HWY_DYNAMIC_DISPATCH(NormBackwardInput)
  ({.dy = args.dy,
    .x = args.x,
    .w = args.w,
    .mean = {},
    .rstd = args.rstd,
    .dx = args.dx,
    .dw = {},
    .db = {},
    .dresidual = args.dresidual},
   args, false, num_threads_);
}

void CpuOps::compute(const RmsNormBackwardWeightArgs& args) {
  HWY_DYNAMIC_DISPATCH(NormBackwardWeight)
  ({.dy = args.dy, .x = args.x, .mean = {}, .rstd = args.rstd, .dw = args.dw, .db = {}}, false, num_threads_);
}

void CpuOps::compute(const RmsNormBackwardArgs& args) {
  HWY_DYNAMIC_DISPATCH(NormBackward)
  ({.dy = args.dy,
    .x = args.x,
    .w = args.w,
    .mean = {},
    .rstd = args.rstd,
    .dx = args.dx,
    .dw = args.dw,
    .db = {},
    .dresidual = args.dresidual},
   {.dy = {}, .x = {}, .w = {}, .rstd = {}, .dx = {}, .gain_offset = args.gain_offset}, false, num_threads_);
}

}  // namespace echelon
#endif
