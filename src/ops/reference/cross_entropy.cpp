// The loss of a row is lse - logit[target] with lse = log sum_j exp logit_j over the whole vocabulary, of which this
// rank has some columns. Each rank sums exp(logit - max) with its own row maximum. Then the ranks compute the largest
// maximum, rescale their sums to it, and add them. d loss / d logit_j = softmax_j - (j == target).
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace echelon {

void ReferenceOps::compute(const RowExpArgs& args) {
  visit_float(args.logits.dtype, [&](auto t) {
    using L = decltype(t);
    using A = Accumulate<L>;
    const std::int64_t V = args.logits.size(1);
    for (std::int64_t n = 0; n < args.logits.size(0); ++n) {
      L* logits = args.logits.as<L>() + n * V;
      const auto logit = [&](std::int64_t j) { return to<A>(logits[j]); };
      A max = -std::numeric_limits<A>::infinity(), sum = 0;
      for (std::int64_t j = 0; j < args.valid_columns && !std::isnan(max); ++j)
        if (std::isnan(logit(j)) || logit(j) > max) max = logit(j);
      const std::int64_t target = args.targets.as<std::int32_t>()[n], column = target - args.first_column;
      const bool is_here = target != ignored_target && column >= 0 && column < args.valid_columns;
      args.target_logit.as<A>()[n] = is_here ? logit(column) : A{0};
      for (std::int64_t j = 0; j < args.valid_columns; ++j) {
        const A e = std::exp(logit(j) - max);
        if constexpr (!is_half<L>) logits[j] = e;
        sum += e;
      }
      args.max.as<A>()[n] = max;
      args.sum.as<A>()[n] = sum;
    }
  });
}

void ReferenceOps::compute(const RescaleSumsArgs& args) {
  visit_float(args.sum.dtype, [&](auto t) {
    using T = Accumulate<decltype(t)>;
    for (std::int64_t n = 0; n < args.sum.num_elements(); ++n)
      args.sum.as<T>()[n] *= std::exp(args.max.as<T>()[n] - args.row_max.as<T>()[n]);
  });
}

void ReferenceOps::compute(const CrossEntropyArgs& args) {
  visit_float(args.max.dtype, [&](auto t) {
    using T = Accumulate<decltype(t)>;
    double loss = 0;
    for (std::int64_t n = 0; n < args.max.num_elements(); ++n) {
      const T lse = args.max.as<T>()[n] + std::log(args.sum.as<T>()[n]);
      if (args.targets.as<std::int32_t>()[n] != ignored_target)
        loss += static_cast<double>(lse) - static_cast<double>(args.target_logit.as<T>()[n]);
      args.lse.as<T>()[n] = lse;
    }
    args.loss_sum.as<double>()[0] += loss;
  });
}

void ReferenceOps::compute(const CrossEntropyBackwardArgs& args) {
  visit_pair(args.dlogits.dtype, args.exps.dtype, [&](auto g, auto l) {
    using G = decltype(g);
    using L = decltype(l);
    using T = Accumulate<G>;
    const std::int64_t V = args.exps.size(1);
    for (std::int64_t n = 0; n < args.exps.size(0); ++n) {
      const std::int64_t target = args.targets.as<std::int32_t>()[n];
      const T max = args.max.as<T>()[n], from_shard = std::exp(max - args.lse.as<T>()[n]);
      const auto exponential = [&](std::int64_t j) {
        const T left = to<T>(args.exps.as<L>()[n * V + j]);
        return is_half<L> ? std::exp(left - max) : left;
      };
      for (std::int64_t j = 0; j < V; ++j) {
        const bool counts = target != ignored_target && j < args.valid_columns;
        const T onehot = args.first_column + j == target ? T{1} : T{0};
        const T dlogit = counts ? static_cast<T>(scale_of(args)) * (exponential(j) * from_shard - onehot) : T{0};
        args.dlogits.as<G>()[n * V + j] = to<G>(dlogit);
      }
    }
  });
}

}  // namespace echelon
