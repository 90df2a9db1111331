// Counts of experts, the losses of a router and its bias. Losses are added in blocks of tokens and these in order, so
// that nothing depends on the number of threads.
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"

#include <array>
#include <cmath>
#include <vector>

namespace echelon {
namespace {

constexpr std::int64_t tokens_of_block = 64;
using Losses = std::array<double, static_cast<std::size_t>(num_router_losses)>;

/// The losses of the tokens of a block, of which each has an addend.
template <class A>
class LossesOfTokens {
 public:
  explicit LossesOfTokens(const RouterLossesArgs& args)
      : args_(args),
        E_(args.logits.size(1)),
        of_z_(static_cast<A>(args.rule.z / args.rule.num_tokens)),
        exps_(static_cast<std::size_t>(E_)),
        p_(exps_.size()),
        of_step_(exps_.size()),
        of_sequence_(exps_.size()) {
    const RouterLosses& rule = args.rule;
    const double scale = args.loss_scale.exists() ? *args.loss_scale.as<double>() : 1;
    seed_ = static_cast<A>(*args.num_targets.as<double>() / rule.expected_targets * scale);
    if (rule.global == 0) return;
    double sum = 0;
    const auto* loads = args.loads.as<double>();
    for (std::int64_t e = 0; e < E_; ++e) sum += loads[e];
    for (std::int64_t e = 0; e < E_; ++e)
      of_step_[static_cast<std::size_t>(e)] =
          static_cast<A>(rule.global * of_all() * (sum > 0 ? loads[e] / sum : 1 / num_experts()));
  }

  void add(std::int64_t n, Losses& losses) {
    A* gradient = args_.gradient.as<A>() + n * E_;
    if (args_.experts.as<std::int32_t>()[n * args_.experts.size(1)] < 0) {
      std::fill_n(gradient, E_, A{0});
      return;
    }
    const A* z = args_.logits.as<A>() + n * E_;
    find_sequence((args_.first_token + n) / args_.tokens_per_sequence);
    const A lse = find_probabilities(z);
    A sequence = 0, global = 0;
    for (std::size_t e = 0; e < p_.size(); ++e) {
      sequence += of_sequence_[e] * p_[e];
      global += of_step_[e] * p_[e];
    }
    const A mean = sequence + global, of_lse = 2 * of_z_ * lse;
    for (std::size_t e = 0; e < p_.size(); ++e) {
      const A softmax = exps_[e] / sum_;
      const A of_score = args_.scores == ExpertScores::softmax ? A{1} : 1 - sigmoid(z[e]);
      gradient[e] = seed_ * (p_[e] * of_score * (of_sequence_[e] + of_step_[e] - mean) + of_lse * softmax);
    }
    losses[0] += static_cast<double>(sequence);
    losses[1] += static_cast<double>(global);
    losses[2] += static_cast<double>(of_z_ * lse * lse);
  }

 private:
  static A sigmoid(A x) { return 1 / (1 + std::exp(-x)); }
  [[nodiscard]] double num_experts() const { return static_cast<double>(E_); }
  [[nodiscard]] double of_all() const { return num_experts() / args_.rule.num_tokens; }

  void find_sequence(std::int64_t sequence) {
    if (sequence == current_ || args_.rule.sequence == 0) return;
    current_ = sequence;
    const double rows = static_cast<double>(args_.experts.size(1)) * args_.rule.tokens_per_sequence;
    for (std::int64_t e = 0; e < E_; ++e)
      of_sequence_[static_cast<std::size_t>(e)] =
          static_cast<A>(args_.rule.sequence * of_all() * args_.counts.as<double>()[sequence * E_ + e] / rows);
  }

  /// exps_, their sum, and p_; returns log(sum exp z).
  A find_probabilities(const A* z) {
    const A max = *std::max_element(z, z + E_);
    sum_ = 0;
    for (std::size_t e = 0; e < p_.size(); ++e) sum_ += exps_[e] = std::exp(z[e] - max);
    A all = sum_;
    if (args_.scores == ExpertScores::sigmoid) {
      all = 0;
      for (std::size_t e = 0; e < p_.size(); ++e) all += p_[e] = sigmoid(z[e]);
    } else {
      p_ = exps_;
    }
    for (A& each : p_) each /= all;
    return max + std::log(sum_);
  }

  const RouterLossesArgs& args_;
  std::int64_t E_, current_ = -1;
  A of_z_, seed_ = 0, sum_ = 0;
  std::vector<A> exps_, p_, of_step_, of_sequence_;
};

template <class A>
void add_router_losses(const RouterLossesArgs& args, int num_threads) {
  constexpr std::int64_t exponential = 8;  // as many values could be moved meanwhile
  const std::int64_t N = args.logits.size(0), num_blocks = (N + tokens_of_block - 1) / tokens_of_block;
  std::vector<Losses> of_blocks(static_cast<std::size_t>(num_blocks), Losses{});
  divide({num_blocks, tokens_of_block * args.logits.size(1) * exponential, 1, num_threads},
         [&](std::int64_t first, std::int64_t last) {
           LossesOfTokens<A> tokens(args);
           for (std::int64_t block = first; block < last; ++block)
             for (std::int64_t n = block * tokens_of_block; n < std::min(N, (block + 1) * tokens_of_block); ++n)
               tokens.add(n, of_blocks[static_cast<std::size_t>(block)]);
         });
  if (*args.num_targets.as<double>() == 0) return;
  for (const Losses& of_block : of_blocks)
    for (std::size_t i = 0; i < of_block.size(); ++i) args.losses.as<double>()[i] += of_block[i];
}

}  // namespace

void CpuOps::compute(const CountExpertsArgs& args) {
  const std::int64_t N = args.experts.size(0), k = args.experts.size(1), E = args.counts.size(1);
  const auto is_nan = [&](std::int64_t i) {
    return args.weights.dtype == DType::float64 ? std::isnan(args.weights.as<double>()[i])
                                                : std::isnan(args.weights.as<float>()[i]);
  };
  for (std::int64_t n = 0; n < N; ++n) {
    double* counts = args.counts.as<double>() + (args.first_token + n) / args.tokens_per_sequence * E;
    for (std::int64_t i = n * k; i < (n + 1) * k; ++i)
      if (const std::int64_t e = args.experts.as<std::int32_t>()[i]; e >= 0 && e < E) {
        counts[e] += 1;
        if (args.num_dropped.exists() && args.slots.as<std::int32_t>()[i] < 0) *args.num_dropped.as<double>() += 1;
      }
    if (args.num_nan.exists() && is_nan(n * k)) *args.num_nan.as<double>() += 1;
  }
}

void CpuOps::compute(const RouterLossesArgs& args) {
  args.logits.dtype == DType::float64 ? add_router_losses<double>(args, num_threads_)
                                      : add_router_losses<float>(args, num_threads_);
}

void CpuOps::compute(const BalanceExpertsArgs& args) {
  if (std::isnan(*args.factor.as<double>())) return;
  const std::int64_t E = args.bias.exists() ? args.bias.size(1) : args.loads.exists() ? args.loads.size(1) : 0;
  for (std::int64_t m = 0; m < args.counts.size(0); ++m) {
    const double* counts = args.counts.as<double>() + m * args.counts.size(1);
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
