// The loss of a row is lse - logit[target] with lse = log sum_j exp logit_j over the whole vocabulary, of which this rank has some columns:
// each rank sums exp(logit - max) with its own row maximum, the ranks agree on the largest, rescale their sums to it, and add up.
// d loss / d logit_j = softmax_j - (j == target).
#include "ops/check.h"
#include "ops/host_scalars.h"
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace echelon {

void ReferenceOps::row_exp(const RowExpArgs& args) {
  check(args);
  visit_float(args.logits.dtype, [&](auto t) {
    using T = Accumulate<decltype(t)>;
    const std::int64_t V = args.logits.size(1);
    for (std::int64_t n = 0; n < args.logits.size(0); ++n) {
      T* logits = args.logits.as<T>() + n * V;
      T max = -std::numeric_limits<T>::infinity(), sum = 0;
      for (std::int64_t j = 0; j < args.valid_columns && !std::isnan(max); ++j)
        if (std::isnan(logits[j]) || logits[j] > max) max = logits[j];
      const std::int64_t target = args.targets.as<std::int32_t>()[n], column = target - args.first_column;
      const bool is_here = target != ignored_target && column >= 0 && column < args.valid_columns;
      args.target_logit.as<T>()[n] = is_here ? logits[column] : T{0};
      for (std::int64_t j = 0; j < args.valid_columns; ++j) sum += logits[j] = std::exp(logits[j] - max);
      args.max.as<T>()[n] = max;
      args.sum.as<T>()[n] = sum;
    }
  });
}

void ReferenceOps::rescale_sums(const RescaleSumsArgs& args) {
  check(args);
  visit_float(args.sum.dtype, [&](auto t) {
    using T = Accumulate<decltype(t)>;
    for (std::int64_t n = 0; n < args.sum.num_elements(); ++n) args.sum.as<T>()[n] *= std::exp(args.max.as<T>()[n] - args.row_max.as<T>()[n]);
  });
}

void ReferenceOps::cross_entropy(const CrossEntropyArgs& args) {
  check(args);
  visit_float(args.max.dtype, [&](auto t) {
    using T = Accumulate<decltype(t)>;
    double loss = 0;
    for (std::int64_t n = 0; n < args.max.num_elements(); ++n) {
      const T lse = args.max.as<T>()[n] + std::log(args.sum.as<T>()[n]);
      if (args.targets.as<std::int32_t>()[n] != ignored_target) loss += static_cast<double>(lse) - static_cast<double>(args.target_logit.as<T>()[n]);
      args.lse.as<T>()[n] = lse;
    }
    args.loss_sum.as<double>()[0] += loss;
  });
}

void ReferenceOps::cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  check(args);
  visit_float(args.dlogits.dtype, [&](auto g) {
    using G = decltype(g);
    using T = Accumulate<G>;
    const std::int64_t V = args.exps.size(1);
    for (std::int64_t n = 0; n < args.exps.size(0); ++n) {
      const std::int64_t target = args.targets.as<std::int32_t>()[n];
      const T from_shard = std::exp(args.max.as<T>()[n] - args.lse.as<T>()[n]);
      for (std::int64_t j = 0; j < V; ++j) {
        const bool counts = target != ignored_target && j < args.valid_columns;
        const T onehot = args.first_column + j == target ? T{1} : T{0};
        const T dlogit = counts ? static_cast<T>(scale_of(args)) * (args.exps.as<T>()[n * V + j] * from_shard - onehot) : T{0};
        args.dlogits.as<G>()[n * V + j] = to<G>(dlogit);
      }
    }
  });
}

}  // namespace echelon
