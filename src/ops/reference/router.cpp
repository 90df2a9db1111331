// The router of a mixture of experts: scores, the choice among experts, their weights, and weighted rows.
#include "ops/reference/reference_ops.h"
#include "ops/visit.h"

#include <cmath>
#include <limits>
#include <vector>

namespace echelon {
namespace {

template <class A>
std::vector<A> scores_of(const A* z, std::int64_t E, ExpertScores kind) {
  std::vector<A> s(z, z + E);
  A max = -std::numeric_limits<A>::infinity(), sum = 0;
  for (const A each : s) max = std::fmax(max, each);
  for (A& each : s) {
    each = kind == ExpertScores::softmax ? std::exp(each - max) : 1 / (1 + std::exp(-each));
    sum += each;
  }
  if (kind == ExpertScores::softmax)
    for (A& each : s) each /= sum;
  return s;
}

/// Of all that are not taken, the first of the largest; a NaN counts as the smallest.
template <class A>
std::size_t take_best(std::vector<A>& values, std::vector<bool>& is_taken) {
  std::size_t best = values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) values[i] = -std::numeric_limits<A>::infinity();
    if (!is_taken[i] && (best == values.size() || values[i] > values[best])) best = i;
  }
  is_taken[best] = true;
  return best;
}

/// Which experts are not in a chosen group.
template <class A>
std::vector<bool> outside_of_groups(const std::vector<A>& values, const RouterRule& rule) {
  const std::size_t groups = static_cast<std::size_t>(rule.num_groups), size = values.size() / groups;
  std::vector<A> of_groups;
  for (std::size_t g = 0; g < groups; ++g) {
    std::vector<A> members(values.begin() + static_cast<std::ptrdiff_t>(g * size),
                           values.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::vector<bool> is_taken(size);
    A score = members[take_best(members, is_taken)];
    if (rule.group_score == GroupScore::sum_of_two && groups > 1) score += members[take_best(members, is_taken)];
    of_groups.push_back(score);
  }
  std::vector<bool> is_taken(groups), is_outside(values.size(), true);
  for (std::int64_t i = 0; i < rule.num_chosen_groups; ++i) {
    const std::size_t g = take_best(of_groups, is_taken);
    for (std::size_t e = g * size; e < (g + 1) * size; ++e) is_outside[e] = false;
  }
  return is_outside;
}

template <class A>
void choose(const ChooseExpertsArgs& args, std::int64_t n) {
  const std::int64_t E = args.logits.size(1), k = args.experts.size(1);
  if (args.is_routed.exists() && args.is_routed.as<std::int32_t>()[n] == 0) {
    for (std::int64_t i = n * k; i < (n + 1) * k; ++i) {
      args.experts.as<std::int32_t>()[i] = -1;
      args.weights.as<A>()[i] = 0;
    }
    return;
  }
  const RouterRule& rule = args.rule;
  const A* z = args.logits.as<A>() + n * E;
  const std::vector<A> scores = scores_of(z, E, rule.scores);
  const bool adds = rule.group_score == GroupScore::sum_of_two && rule.num_groups > 1;
  std::vector<A> values = adds || args.bias.exists() ? scores : std::vector<A>(z, z + E);
  for (std::int64_t e = 0; args.bias.exists() && e < E; ++e)
    values[static_cast<std::size_t>(e)] += static_cast<A>(args.bias.as<float>()[e]);
  std::vector<bool> is_taken = outside_of_groups(values, rule);
  A sum = 0, nan = 0;
  for (const A score : scores) nan += std::isnan(score) ? score : A{0};
  for (std::int64_t i = n * k; i < (n + 1) * k; ++i) {
    const std::size_t e = take_best(values, is_taken);
    args.experts.as<std::int32_t>()[i] = static_cast<std::int32_t>(e);
    sum += args.weights.as<A>()[i] = scores[e];
  }
  for (std::int64_t i = n * k; i < (n + 1) * k; ++i) {
    A& weight = args.weights.as<A>()[i];
    if (rule.normalises) weight /= sum + A(1e-20);
    weight = weight * static_cast<A>(rule.scale) + nan;
  }
}

template <class A, class T>
void choose_backward(const ChooseExpertsBackwardArgs& args, std::int64_t n) {
  const std::int64_t E = args.logits.size(1), k = args.experts.size(1);
  const RouterRule& rule = args.rule;
  const std::vector<A> s = scores_of(args.logits.as<A>() + n * E, E, rule.scores);
  const auto* experts = args.experts.as<std::int32_t>() + n * k;
  const A* dweights = args.dweights.as<A>() + n * k;
  if (experts[0] < 0) {
    for (std::int64_t i = n * E; i < (n + 1) * E; ++i) args.dlogits.as<T>()[i] = to<T>(A{0});
    return;
  }
  const auto score_of = [&](std::int64_t j) { return s[static_cast<std::size_t>(experts[j])]; };
  A sum = A(1e-20), product = 0;
  for (std::int64_t j = 0; j < k; ++j) sum += score_of(j);
  for (std::int64_t j = 0; j < k; ++j) product += dweights[j] * score_of(j) / sum;
  std::vector<A> ds(s.size());
  for (std::int64_t j = 0; j < k; ++j)
    ds[static_cast<std::size_t>(experts[j])] =
        static_cast<A>(rule.scale) * (rule.normalises ? (dweights[j] - product) / sum : dweights[j]);
  A mean = 0;
  for (std::size_t e = 0; e < s.size(); ++e) mean += ds[e] * s[e];
  for (std::size_t e = 0; e < s.size(); ++e) {
    const std::int64_t at = n * E + static_cast<std::int64_t>(e);
    const A addend = args.addend.exists() ? args.addend.as<A>()[at] : A{0};
    args.dlogits.as<T>()[at] =
        to<T>(s[e] * (rule.scores == ExpertScores::softmax ? ds[e] - mean : ds[e] * (1 - s[e])) + addend);
  }
}

}  // namespace

void ReferenceOps::compute(const ChooseExpertsArgs& args) {
  for (std::int64_t n = 0; n < args.logits.size(0); ++n)
    args.logits.dtype == DType::float64 ? choose<double>(args, n) : choose<float>(args, n);
}

void ReferenceOps::compute(const ChooseExpertsBackwardArgs& args) {
  visit_float(args.dlogits.dtype, [&](auto t) {
    using T = decltype(t);
    for (std::int64_t n = 0; n < args.logits.size(0); ++n) choose_backward<Accumulate<T>, T>(args, n);
  });
}

void ReferenceOps::compute(const WeightRowsArgs& args) {
  const std::int64_t D = args.x.size(1);
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t i = 0; i < args.slots.num_elements(); ++i) {
      const std::int64_t slot = args.slots.as<std::int32_t>()[i];
      for (std::int64_t d = 0; slot >= 0 && d < D; ++d)
        args.y.as<T>()[slot * D + d] = to<T>(args.weights.as<A>()[i] * to<A>(args.x.as<T>()[slot * D + d]));
    }
  });
}

void ReferenceOps::compute(const WeightRowsBackwardArgs& args) {
  const std::int64_t D = args.x.size(1);
  visit_float(args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulate<T>;
    for (std::int64_t i = 0; i < args.slots.num_elements(); ++i) {
      const std::int64_t slot = args.slots.as<std::int32_t>()[i];
      const A weight = args.weights.as<A>()[i];
      A sum = 0;
      for (std::int64_t at = slot * D; slot >= 0 && at < (slot + 1) * D; ++at) {
        const A dy = to<A>(args.dy.as<T>()[at]), x = to<A>(args.x.as<T>()[at]);
        sum += dy * x;
        args.dx.as<T>()[at] = to<T>(weight * dy);
        if (args.y.exists()) args.y.as<T>()[at] = to<T>(weight * x);
      }
      args.dweights.as<A>()[i] = sum;
    }
  });
}

}  // namespace echelon
