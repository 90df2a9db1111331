// The loss of a row is lse - logit[target] with lse = log sum_j exp logit_j over the whole vocabulary, of which this rank has some columns:
// each rank takes its row maximum, the ranks agree on the largest, each sums exp(logit - max), the ranks add up. d loss / d logit_j = softmax_j - (j ==
// target).
#include "ops/check.h"
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace echelon {

void ReferenceOps::row_max(const RowMaxArgs& args) {
  check(args);
  visit_float(args.logits.dtype, [&](auto t) {
    using T = Accumulate<decltype(t)>;
    const std::int64_t V = args.logits.size(1);
    for (std::int64_t n = 0; n < args.logits.size(0); ++n) {
      T max = -std::numeric_limits<T>::infinity();
      for (std::int64_t j = 0; j < args.valid_columns; ++j) {
        const T logit = args.logits.as<T>()[n * V + j];
        if (std::isnan(logit) || logit > max) max = logit;
        if (std::isnan(max)) break;
      }
      args.max.as<T>()[n] = max;
    }
  });
}

void ReferenceOps::row_sum_exp(const RowSumExpArgs& args) {
  check(args);
  visit_float(args.logits.dtype, [&](auto t) {
    using T = Accumulate<decltype(t)>;
    const std::int64_t V = args.logits.size(1);
    for (std::int64_t n = 0; n < args.logits.size(0); ++n) {
      const T* logits = args.logits.as<T>() + n * V;
      T sum = 0;
      for (std::int64_t j = 0; j < args.valid_columns; ++j) sum += std::exp(logits[j] - args.max.as<T>()[n]);
      const std::int64_t target = args.targets.as<std::int32_t>()[n], column = target - args.first_column;
      const bool is_here = target != ignored_target && column >= 0 && column < args.valid_columns;
      args.sum.as<T>()[n] = sum;
      args.target_logit.as<T>()[n] = is_here ? logits[column] : T{0};
    }
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
  visit_float(args.logits.dtype, [&](auto t) {
    using T = Accumulate<decltype(t)>;
    const std::int64_t V = args.logits.size(1);
    for (std::int64_t n = 0; n < args.logits.size(0); ++n) {
      const std::int64_t target = args.targets.as<std::int32_t>()[n];
      for (std::int64_t j = 0; j < V; ++j) {
        T& logit = args.logits.as<T>()[n * V + j];
        const bool counts = target != ignored_target && j < args.valid_columns;
        const T onehot = args.first_column + j == target ? T{1} : T{0};
        logit = counts ? static_cast<T>(args.scale) * (std::exp(logit - args.lse.as<T>()[n]) - onehot) : T{0};
      }
    }
  });
}

}  // namespace echelon
