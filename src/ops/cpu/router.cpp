// The router of a mixture of experts. Threads divide tokens, so nothing depends on how many there are.
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/router_scores.h"
#include "ops/visit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace echelon {
namespace {

/// The k best in descending order, of equal ones the first: `add` is called in ascending order of `index`.
template <class A>
class Best {
 public:
  explicit Best(std::int64_t k) : values_(static_cast<std::size_t>(k)), indices_(static_cast<std::size_t>(k)) {}

  void clear() { count_ = 0; }
  void add(A value, std::int32_t index) {
    if (std::isnan(value)) value = -std::numeric_limits<A>::infinity();
    if (count_ == values_.size() && !(value > values_.back())) return;
    if (count_ < values_.size()) ++count_;
    std::size_t i = count_ - 1;
    for (; i > 0 && value > values_[i - 1]; --i) {
      values_[i] = values_[i - 1];
      indices_[i] = indices_[i - 1];
    }
    values_[i] = value;
    indices_[i] = index;
  }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] A value(std::size_t i) const { return values_[i]; }
  [[nodiscard]] std::int32_t index(std::size_t i) const { return indices_[i]; }

 private:
  std::vector<A> values_;
  std::vector<std::int32_t> indices_;
  std::size_t count_ = 0;
};

template <class A>
class Router {
 public:
  explicit Router(const ChooseExpertsArgs& args)
      : args_(args),
        E_(args.logits.size(1)),
        k_(args.experts.size(1)),
        adds_two_(args.rule.group_score == GroupScore::sum_of_two && args.rule.num_groups > 1),
        experts_(k_),
        groups_(args.rule.num_chosen_groups),
        two_(adds_two_ ? 2 : 1) {}

  void choose(std::int64_t n) {
    if (args_.is_routed.exists() && args_.is_routed.as<std::int32_t>()[n] == 0) {
      std::fill_n(args_.experts.as<std::int32_t>() + n * k_, k_, -1);
      std::fill_n(args_.weights.as<A>() + n * k_, k_, A{0});
      return;
    }
    const A* z = args_.logits.as<A>() + n * E_;
    const Scores<A> scores(z, E_, args_.rule.scores);
    const float* bias = args_.bias.exists() ? args_.bias.as<float>() : nullptr;
    if (bias == nullptr && !adds_two_)
      choose_by([&](std::int64_t e) { return z[e]; });
    else
      choose_by([&](std::int64_t e) { return scores.at(e) + (bias == nullptr ? A{0} : static_cast<A>(bias[e])); });
    write(n, scores);
  }

 private:
  template <class Value>
  void choose_by(const Value& value) {
    const std::int64_t num_groups = args_.rule.num_groups, size = E_ / num_groups;
    std::array<bool, static_cast<std::size_t>(most_expert_groups)> is_open{};
    if (num_groups == 1) is_open[0] = true;
    groups_.clear();
    for (std::int64_t g = 0; num_groups > 1 && g < num_groups; ++g) {
      two_.clear();
      for (std::int64_t e = g * size; e < (g + 1) * size; ++e) two_.add(value(e), 0);
      groups_.add(adds_two_ ? two_.value(0) + two_.value(1) : two_.value(0), static_cast<std::int32_t>(g));
    }
    for (std::size_t i = 0; i < groups_.count(); ++i) is_open[static_cast<std::size_t>(groups_.index(i))] = true;
    experts_.clear();
    for (std::int64_t g = 0; g < num_groups; ++g)
      for (std::int64_t e = g * size; is_open[static_cast<std::size_t>(g)] && e < (g + 1) * size; ++e)
        experts_.add(value(e), static_cast<std::int32_t>(e));
  }

  void write(std::int64_t n, const Scores<A>& scores) const {
    auto* experts = args_.experts.as<std::int32_t>() + n * k_;
    A *weights = args_.weights.as<A>() + n * k_, sum = 0;
    for (std::int64_t j = 0; j < k_; ++j) {
      experts[j] = experts_.index(static_cast<std::size_t>(j));
      sum += weights[j] = scores.at(experts[j]);
    }
    for (std::int64_t j = 0; j < k_; ++j) {
      if (args_.rule.normalises) weights[j] /= sum + A(1e-20);
      weights[j] =
          scores.is_nan() ? std::numeric_limits<A>::quiet_NaN() : weights[j] * static_cast<A>(args_.rule.scale);
    }
  }

  const ChooseExpertsArgs& args_;
  std::int64_t E_, k_;
  bool adds_two_;
  Best<A> experts_, groups_, two_;
};

template <class A, class T>
void choose_backward(const ChooseExpertsBackwardArgs& args, std::int64_t n) {
  const std::int64_t E = args.logits.size(1), k = args.experts.size(1);
  const RouterRule& rule = args.rule;
  const Scores<A> scores(args.logits.as<A>() + n * E, E, rule.scores);
  const auto* experts = args.experts.as<std::int32_t>() + n * k;
  const A *dweights = args.dweights.as<A>() + n * k, scale = static_cast<A>(rule.scale);
  T* dz = args.dlogits.as<T>() + n * E;
  if (experts[0] < 0) {
    std::fill_n(dz, E, to<T>(A{0}));
    return;
  }
  const A* addend = args.addend.exists() ? args.addend.as<A>() + n * E : nullptr;
  const auto write = [&](std::int64_t e, A value) { dz[e] = to<T>(addend == nullptr ? value : value + addend[e]); };
  A sum = A(1e-20), product = 0, mean = 0;
  for (std::int64_t j = 0; j < k; ++j) {
    sum += scores.at(experts[j]);
    product += dweights[j] * scores.at(experts[j]);
  }
  const auto gradient = [&](std::int64_t j) {
    return scale * (rule.normalises ? (dweights[j] - product / sum) / sum : dweights[j]);
  };
  const bool is_softmax = rule.scores == ExpertScores::softmax;
  for (std::int64_t j = 0; is_softmax && j < k; ++j) mean += gradient(j) * scores.at(experts[j]);
  for (std::int64_t e = 0; e < E; ++e) write(e, is_softmax ? -mean * scores.at(e) : A{0});
  for (std::int64_t j = 0; j < k; ++j) {
    const A s = scores.at(experts[j]);
    write(experts[j], s * (is_softmax ? gradient(j) - mean : gradient(j) * (1 - s)));
  }
}

}  // namespace

void CpuOps::compute(const ChooseExpertsArgs& args) {
  constexpr std::int64_t exponential = 8;  // as many values could be moved meanwhile
  const auto of_type = [&](auto a) {
    divide({args.logits.size(0), args.logits.size(1) * exponential, 1, num_threads_},
           [&](std::int64_t first, std::int64_t last) {
             Router<decltype(a)> router(args);
             for (std::int64_t n = first; n < last; ++n) router.choose(n);
           });
  };
  args.logits.dtype == DType::float64 ? of_type(double{}) : of_type(float{});
}

void CpuOps::compute(const ChooseExpertsBackwardArgs& args) {
  constexpr std::int64_t exponential = 8;
  visit_float(args.dlogits.dtype, [&](auto t) {
    using T = decltype(t);
    divide({args.logits.size(0), args.logits.size(1) * exponential, 1, num_threads_},
           [&](std::int64_t first, std::int64_t last) {
             for (std::int64_t n = first; n < last; ++n) choose_backward<Accumulate<T>, T>(args, n);
           });
  });
}

}  // namespace echelon
