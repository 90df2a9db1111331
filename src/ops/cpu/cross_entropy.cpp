// The softmax over a vocabulary of which this rank has some columns, and the loss (formulas:
// ops/reference/cross_entropy.cpp).
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/cross_entropy.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/parallel.h"

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

template <class L>
HWY_INLINE Accumulate<L> row_maximum(const L* logits, std::int64_t count) {
  using A = Accumulate<L>;
  const Tag<A> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<A>::infinity());
  auto max = lowest, nan = hn::Zero(d);  // a comparison drops a NaN, so it is kept separately
  for_lanes<A>(0, count, [&](auto lanes, std::int64_t i) HWY_ATTR {
    const auto x = lanes.load(logits + i);
    max = hn::Max(max, lanes.valid_or(x, lowest));
    nan = hn::IfThenElse(hn::IsNaN(x), x, nan);
  });
  const A nan_or_zero = sum_of_lanes<A>(nan);
  return std::isnan(nan_or_zero) ? nan_or_zero : hn::GetLane(hn::MaxOfLanes(d, max));
}

/// The sum of exp(logits - max), in blocks, so that no partial sum has many thousand terms. It takes the place of
/// logits that are not of 16 bits.
template <class L, class A>
HWY_INLINE A exponentials(L* logits, std::int64_t count, A max) {
  constexpr std::int64_t block = 1024;
  const auto zero = hn::Zero(Tag<A>()), maxima = hn::Set(Tag<A>(), max);
  A total = 0;
  for (std::int64_t first = 0; first < count; first += block) {
    auto sum = zero;
    for_lanes<A>(first, std::min(count, first + block), [&](auto lanes, std::int64_t i) HWY_ATTR {
      const auto e = exp_below_one<A>(hn::Sub(lanes.load(logits + i), maxima));
      if constexpr (!is_half<L>) lanes.store(e, logits + i);
      sum = hn::Add(sum, lanes.valid_or(e, zero));
    });
    total += sum_of_lanes<A>(sum);
  }
  return total;
}

// A row stays in the second cache from its maximum to its exponentials.
template <class L>
void row_exponentials(const RowExpArgs& args, int num_threads) {
  using A = Accumulate<L>;
  const std::int64_t V = args.logits.size(1);
  divide({args.logits.size(0), 4 * V, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t n = first; n < last; ++n) {
      L* logits = args.logits.as<L>() + n * V;
      const std::int64_t target = args.targets.as<std::int32_t>()[n], column = target - args.first_column;
      const bool is_here = target != ignored_target && column >= 0 && column < args.valid_columns;
      const A max = row_maximum(logits, args.valid_columns);
      args.target_logit.as<A>()[n] = is_here ? to<A>(logits[column]) : A{0};
      args.max.as<A>()[n] = max;
      args.sum.as<A>()[n] = exponentials(logits, args.valid_columns, max);
    }
  });
}

/// L: of what row_exp left, logits if they are of 16 bits, else exponentials.
template <class T, class L>
void logit_gradients(const CrossEntropyBackwardArgs& args, int num_threads) {
  using A = Accumulate<T>;
  const std::int64_t V = args.exps.size(1);
  divide({args.exps.size(0), V, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t n = first; n < last; ++n) {
      const L* exps = args.exps.as<L>() + n * V;
      T* dlogits = args.dlogits.as<T>() + n * V;
      const std::int64_t target = args.targets.as<std::int32_t>()[n], column = target - args.first_column;
      const std::int64_t valid = target == ignored_target ? 0 : args.valid_columns;
      const bool is_here = column >= 0 && column < valid;
      const A max = args.max.as<A>()[n], from_shard = std::exp(max - args.lse.as<A>()[n]),
              scale = static_cast<A>(scale_of(args));
      const A of_target = !is_here ? A{0} : is_half<L> ? std::exp(to<A>(exps[column]) - max) : to<A>(exps[column]);
      const A target_gradient = scale * (of_target * from_shard - 1);
      const auto factor = hn::Set(Tag<A>(), scale * from_shard), maxima = hn::Set(Tag<A>(), max);
      for_lanes<A>(0, valid, [=](auto lanes, std::int64_t i) HWY_ATTR {
        auto e = lanes.load(exps + i);
        if constexpr (is_half<L>) e = exp_below_one<A>(hn::Sub(e, maxima));
        lanes.store(hn::Mul(factor, e), dlogits + i);
      });
      if (is_here) dlogits[column] = to<T>(target_gradient);
      std::fill(dlogits + valid, dlogits + V, to<T>(A{0}));
    }
  });
}

void RowExp(const RowExpArgs& args, int num_threads) {
  visit_float(args.logits.dtype, [&](auto l) { row_exponentials<decltype(l)>(args, num_threads); });
}
void CrossEntropyBackward(const CrossEntropyBackwardArgs& args, int num_threads) {
  visit_pair(args.dlogits.dtype, args.exps.dtype,
             [&](auto t, auto l) { logit_gradients<decltype(t), decltype(l)>(args, num_threads); });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {
namespace {

template <class A>
void add_losses(const CrossEntropyArgs& args) {
  double loss = 0;
  for (std::int64_t n = 0; n < args.max.num_elements(); ++n) {
    const A lse = args.max.as<A>()[n] + std::log(args.sum.as<A>()[n]);
    if (args.targets.as<std::int32_t>()[n] != ignored_target)
      loss += static_cast<double>(lse) - static_cast<double>(args.target_logit.as<A>()[n]);
    args.lse.as<A>()[n] = lse;
  }
  args.loss_sum.as<double>()[0] += loss;
}

template <class A>
void rescale(const RescaleSumsArgs& args) {
  for (std::int64_t n = 0; n < args.sum.num_elements(); ++n)
    args.sum.as<A>()[n] *= std::exp(args.max.as<A>()[n] - args.row_max.as<A>()[n]);
}

}  // namespace

HWY_EXPORT(RowExp);
HWY_EXPORT(CrossEntropyBackward);

void CpuOps::compute(const RowExpArgs& args) { HWY_DYNAMIC_DISPATCH(RowExp)(args, num_threads_); }

void CpuOps::compute(const RescaleSumsArgs& args) {
  args.sum.dtype == DType::float64 ? rescale<double>(args) : rescale<float>(args);
}

void CpuOps::compute(const CrossEntropyArgs& args) {
  args.max.dtype == DType::float64 ? add_losses<double>(args) : add_losses<float>(args);
}

void CpuOps::compute(const CrossEntropyBackwardArgs& args) {
  HWY_DYNAMIC_DISPATCH(CrossEntropyBackward)(args, num_threads_);
}

}  // namespace echelon
#endif
