// The softmax over a vocabulary of which this rank has some columns, and the loss (formulas: ops/reference/cross_entropy.cpp).
#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/cross_entropy.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/check.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/parallel.h"

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

template <class A>
void row_maxima(const RowMaxArgs& args, int num_threads) {
  const Tag<A> d;
  const std::int64_t V = args.logits.size(1);
  divide({args.logits.size(0), V, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t n = first; n < last; ++n) {
      const A* logits = args.logits.as<A>() + n * V;
      const auto lowest = hn::Set(d, -std::numeric_limits<A>::infinity());
      auto max = lowest, nan = hn::Zero(d);  // of a comparison with NaN nothing remains, so it is kept apart
      for_lanes<A>(0, args.valid_columns, [&](auto lanes, std::int64_t i) HWY_ATTR {
        const auto x = lanes.load(logits + i);
        max = hn::Max(max, lanes.valid_or(x, lowest));
        nan = hn::IfThenElse(hn::IsNaN(x), x, nan);
      });
      const A nan_or_zero = sum_of_lanes<A>(nan);
      args.max.as<A>()[n] = std::isnan(nan_or_zero) ? nan_or_zero : hn::GetLane(hn::MaxOfLanes(d, max));
    }
  });
}

/// sum of exp(logits - max), in blocks, so that no partial sum has many thousand terms.
template <class A>
HWY_INLINE A sum_exp(const A* logits, std::int64_t count, A max) {
  constexpr std::int64_t block = 1024;
  const auto zero = hn::Zero(Tag<A>()), maxima = hn::Set(Tag<A>(), max);
  A total = 0;
  for (std::int64_t first = 0; first < count; first += block) {
    auto sum = zero;
    for_lanes<A>(first, std::min(count, first + block), [&](auto lanes, std::int64_t i) HWY_ATTR {
      sum = hn::Add(sum, lanes.valid_or(exp_below_one<A>(hn::Sub(lanes.load(logits + i), maxima)), zero));
    });
    total += sum_of_lanes<A>(sum);
  }
  return total;
}

template <class A>
void row_sums(const RowSumExpArgs& args, int num_threads) {
  const std::int64_t V = args.logits.size(1);
  divide({args.logits.size(0), 4 * V, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t n = first; n < last; ++n) {
      const A* logits = args.logits.as<A>() + n * V;
      const std::int64_t target = args.targets.as<std::int32_t>()[n], column = target - args.first_column;
      const bool is_here = target != ignored_target && column >= 0 && column < args.valid_columns;
      args.sum.as<A>()[n] = sum_exp(logits, args.valid_columns, args.max.as<A>()[n]);
      args.target_logit.as<A>()[n] = is_here ? logits[column] : A{0};
    }
  });
}

template <class A>
void logits_to_gradients(const CrossEntropyBackwardArgs& args, int num_threads) {
  const Tag<A> d;
  const std::int64_t V = args.logits.size(1);
  divide({args.logits.size(0), 4 * V, 1, num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t n = first; n < last; ++n) {
      A* logits = args.logits.as<A>() + n * V;
      const std::int64_t target = args.targets.as<std::int32_t>()[n], column = target - args.first_column;
      const std::int64_t valid = target == ignored_target ? 0 : args.valid_columns;
      const auto lse = hn::Set(d, args.lse.as<A>()[n]), factor = hn::Set(d, static_cast<A>(args.scale));
      const A target_logit = column >= 0 && column < valid ? logits[column] : A{0};
      for_lanes<A>(0, valid, [=](auto lanes, std::int64_t i) HWY_ATTR {
        lanes.store(hn::Mul(factor, exp_below_one<A>(hn::Sub(lanes.load(logits + i), lse))), logits + i);
      });
      if (column >= 0 && column < valid) logits[column] = static_cast<A>(args.scale) * (std::exp(target_logit - args.lse.as<A>()[n]) - 1);
      std::fill(logits + valid, logits + V, A{0});
    }
  });
}

void RowMax(const RowMaxArgs& args, int num_threads) {
  args.logits.dtype == DType::float64 ? row_maxima<double>(args, num_threads) : row_maxima<float>(args, num_threads);
}
void RowSumExp(const RowSumExpArgs& args, int num_threads) {
  args.logits.dtype == DType::float64 ? row_sums<double>(args, num_threads) : row_sums<float>(args, num_threads);
}
void CrossEntropyBackward(const CrossEntropyBackwardArgs& args, int num_threads) {
  args.logits.dtype == DType::float64 ? logits_to_gradients<double>(args, num_threads) : logits_to_gradients<float>(args, num_threads);
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
    if (args.targets.as<std::int32_t>()[n] != ignored_target) loss += static_cast<double>(lse) - static_cast<double>(args.target_logit.as<A>()[n]);
    args.lse.as<A>()[n] = lse;
  }
  args.loss_sum.as<double>()[0] += loss;
}

}  // namespace

HWY_EXPORT(RowMax);
HWY_EXPORT(RowSumExp);
HWY_EXPORT(CrossEntropyBackward);

void CpuOps::row_max(const RowMaxArgs& args) {
  check(args);
  HWY_DYNAMIC_DISPATCH(RowMax)(args, num_threads_);
}

void CpuOps::row_sum_exp(const RowSumExpArgs& args) {
  check(args);
  HWY_DYNAMIC_DISPATCH(RowSumExp)(args, num_threads_);
}

void CpuOps::cross_entropy(const CrossEntropyArgs& args) {
  check(args);
  args.max.dtype == DType::float64 ? add_losses<double>(args) : add_losses<float>(args);
}

void CpuOps::cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  check(args);
  HWY_DYNAMIC_DISPATCH(CrossEntropyBackward)(args, num_threads_);
}

}  // namespace echelon
#endif
