// What evens out the loads of experts: counts, the losses of a router and its bias, as the formulas say them.
#include "ops/reference/reference_ops.h"

#include <cmath>
#include <vector>

namespace echelon {
namespace {

bool is_padding(const Tensor& experts, std::int64_t n) { return experts.as<std::int32_t>()[n * experts.size(1)] < 0; }

/// p, and log(sum_e exp z_e).
template <class A>
std::pair<std::vector<A>, A> probabilities(const A* z, std::int64_t E, ExpertScores kind) {
  A max = z[0], sum = 0, all = 0;
  for (std::int64_t e = 0; e < E; ++e) max = std::fmax(max, z[e]);
  for (std::int64_t e = 0; e < E; ++e) sum += std::exp(z[e] - max);
  std::vector<A> p;
  for (std::int64_t e = 0; e < E; ++e) {
    p.push_back(kind == ExpertScores::softmax ? std::exp(z[e] - max) / sum : 1 / (1 + std::exp(-z[e])));
    all += p.back();
  }
  for (A& each : p) each /= all;
  return {p, max + std::log(sum)};
}

template <class A>
void add_losses(const RouterLossesArgs& args, std::int64_t n) {
  const std::int64_t E = args.logits.size(1), k = args.experts.size(1),
                     s = (args.first_token + n) / args.tokens_per_sequence;
  const RouterLosses& rule = args.rule;
  const A* z = args.logits.as<A>() + n * E;
  const double num_targets = *args.num_targets.as<double>(),
               seed =
                   num_targets / rule.expected_targets * (args.loss_scale.exists() ? *args.loss_scale.as<double>() : 1);
  double sum_of_loads = 0;
  for (std::int64_t e = 0; args.loads.exists() && e < E; ++e) sum_of_loads += args.loads.as<double>()[e];
  const auto [p, lse] = probabilities(z, E, args.scores);
  A sequence = 0, global = 0, mean = 0;
  std::vector<A> factors;
  for (std::size_t e = 0; e < p.size(); ++e) {
    const auto at = static_cast<std::int64_t>(e);
    const double num_experts = static_cast<double>(E), of_all = num_experts / rule.num_tokens;
    const double of_sequence = rule.sequence == 0 ? 0
                                                  : rule.sequence * of_all * args.counts.as<double>()[s * E + at] /
                                                        (static_cast<double>(k) * rule.tokens_per_sequence);
    const double f = sum_of_loads > 0 ? args.loads.as<double>()[at] / sum_of_loads : 1 / num_experts;
    const double of_step = rule.global == 0 ? 0 : rule.global * of_all * f;
    sequence += static_cast<A>(of_sequence) * p[e];
    global += static_cast<A>(of_step) * p[e];
    factors.push_back(static_cast<A>(of_sequence) + static_cast<A>(of_step));
    mean += factors.back() * p[e];
  }
  const A of_z = static_cast<A>(rule.z / rule.num_tokens);
  for (std::int64_t e = 0; e < E; ++e) {
    const auto i = static_cast<std::size_t>(e);
    const A of_score = args.scores == ExpertScores::softmax ? A{1} : 1 - 1 / (1 + std::exp(-z[e]));
    args.gradient.as<A>()[n * E + e] =
        static_cast<A>(seed) * (p[i] * of_score * (factors[i] - mean) + 2 * of_z * lse * std::exp(z[e] - lse));
  }
  if (num_targets == 0) return;
  auto* losses = args.losses.as<double>();
  losses[0] += static_cast<double>(sequence);
  losses[1] += static_cast<double>(global);
  losses[2] += static_cast<double>(of_z * lse * lse);
}

}  // namespace

void ReferenceOps::compute(const CountExpertsArgs& args) {
  const std::int64_t N = args.experts.size(0), k = args.experts.size(1), E = args.counts.size(1);
  for (std::int64_t n = 0; n < N; ++n) {
    const std::int64_t s = (args.first_token + n) / args.tokens_per_sequence;
    for (std::int64_t j = 0; j < k; ++j)
      if (const std::int64_t e = args.experts.as<std::int32_t>()[n * k + j]; e >= 0 && e < E)
        args.counts.as<double>()[s * E + e] += 1;
    for (std::int64_t i = n * k; args.num_dropped.exists() && i < (n + 1) * k; ++i)
      if (const std::int64_t e = args.experts.as<std::int32_t>()[i];
          e >= 0 && e < E && args.slots.as<std::int32_t>()[i] < 0)
        *args.num_dropped.as<double>() += 1;
    if (!args.num_nan.exists()) continue;
    const bool is_nan = args.weights.dtype == DType::float64 ? std::isnan(args.weights.as<double>()[n * k])
                                                             : std::isnan(args.weights.as<float>()[n * k]);
    if (is_nan) *args.num_nan.as<double>() += 1;
  }
}

void ReferenceOps::compute(const RouterLossesArgs& args) {
  const std::int64_t E = args.logits.size(1);
  for (std::int64_t n = 0; n < args.logits.size(0); ++n) {
    if (is_padding(args.experts, n)) {
      for (std::int64_t i = n * E; i < (n + 1) * E; ++i)
        args.gradient.dtype == DType::float64 ? args.gradient.as<double>()[i] = 0 : args.gradient.as<float>()[i] = 0;
      continue;
    }
    args.logits.dtype == DType::float64 ? add_losses<double>(args, n) : add_losses<float>(args, n);
  }
}

void ReferenceOps::compute(const BalanceExpertsArgs& args) {
  if (std::isnan(*args.factor.as<double>())) return;
  for (std::int64_t m = 0; m < args.counts.size(0); ++m) {
    const double* counts = args.counts.as<double>() + m * args.counts.size(1);
    const std::int64_t E = args.bias.exists() ? args.bias.size(1) : args.loads.exists() ? args.loads.size(1) : 0;
    double sum = 0;
    for (std::int64_t e = 0; e < E; ++e) sum += counts[e];
    for (std::int64_t e = 0; e < E; ++e) {
      const double above = static_cast<double>(E) * counts[e];
      const double sign = above < sum ? 1 : above > sum ? -1 : 0;
      if (args.bias.exists()) args.bias.as<float>()[m * E + e] += static_cast<float>(args.rate * sign);
      if (args.loads.exists()) args.loads.as<double>()[m * E + e] = counts[e];
    }
  }
}

}  // namespace echelon
