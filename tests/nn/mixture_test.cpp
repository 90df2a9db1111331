// A mixture of experts against a dense oracle in float64, which computes every expert for every token and weights most
// of them with zero.
#include "nn/decoder/mixture.h"

#include "nn/bench.h"
#include "nn/models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>

namespace echelon::test {
namespace {

using Values = std::vector<double>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

class Oracle {
 public:
  Oracle(const MixtureSpec& spec, Bench& bench) : spec_(spec) {
    for (const Param* param : bench.params()) weights_[param->name] = numbers_of(param->value);
  }

  [[nodiscard]] Values output(const Values& x) const { return output(x, weights_of_experts(x)); }
  [[nodiscard]] Values output(const Values& x, const Values& weights) const {
    Values y(x.size(), 0.0);
    for (std::int64_t e = 0; e < spec_.num_experts; ++e)
      add(y, weights[static_cast<std::size_t>(e)], feed_forward("mlp.experts.", e, x));
    if (spec_.shared_expert_intermediate_size > 0)
      add(y, weight_of_shared(x), feed_forward("mlp.shared_expert.", 0, x));
    return y;
  }

  [[nodiscard]] double weight_of_shared(const Values& x) const {
    return spec_.gates_shared_expert ? sigmoid(product("mlp.shared_expert_gate.weight", 0, 1, x)[0]) : 1.0;
  }
  /// Of every expert, zero for those that are not chosen. Without groups.
  [[nodiscard]] Values weights_of_experts(const Values& x) const {
    const Values z = product("mlp.gate.weight", 0, spec_.num_experts, x);
    Values s(z.size()), weights(z.size(), 0.0);
    double sum = 0;
    for (const double each : z) sum += std::exp(each);
    for (std::size_t e = 0; e < z.size(); ++e)
      s[e] = spec_.scoring_func == RouterScores::softmax ? std::exp(z[e]) / sum : sigmoid(z[e]);
    std::vector<std::size_t> order(z.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return s[a] > s[b]; });
    order.resize(static_cast<std::size_t>(spec_.num_experts_per_tok));
    double chosen = 0;
    for (const std::size_t e : order) chosen += s[e];
    for (const std::size_t e : order)
      weights[e] = spec_.routed_scaling_factor * s[e] / (spec_.norm_topk_prob ? chosen : 1);
    return weights;
  }

 private:
  /// Matrix `index` [out, in] of the parameter, times x [in].
  [[nodiscard]] Values product(const std::string& name, std::int64_t index, std::int64_t out, const Values& x) const {
    const Values& w = weights_.at(name);
    Values y(static_cast<std::size_t>(out), 0.0);
    const std::size_t first = static_cast<std::size_t>(index * out) * x.size();
    for (std::size_t o = 0; o < y.size(); ++o)
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += w[first + o * x.size() + i] * x[i];
    return y;
  }
  [[nodiscard]] Values feed_forward(const std::string& prefix, std::int64_t e, const Values& x) const {
    const std::int64_t F =
        prefix == "mlp.experts." ? spec_.moe_intermediate_size : spec_.shared_expert_intermediate_size;
    const Values gate = product(prefix + "gate_proj.weight", e, F, x), up = product(prefix + "up_proj.weight", e, F, x);
    Values inner(gate.size());
    for (std::size_t f = 0; f < inner.size(); ++f) inner[f] = gate[f] * sigmoid(gate[f]) * up[f];
    return product(prefix + "down_proj.weight", e, static_cast<std::int64_t>(x.size()), inner);
  }
  static void add(Values& y, double weight, const Values& x) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += weight * x[i];
  }

  MixtureSpec spec_;
  std::map<std::string, Values> weights_;
};

Values row_of(const Tensor& x, std::int64_t n) { return numbers_of(x.rows(n, 1)); }

enum class Gate : std::uint8_t { random, zero };

void expect_output_of_oracle(const MixtureSpec& spec, Gate gate = Gate::random) {
  ModelSpec model = small_llama();
  model.mixture = spec;
  const LayerOptions options = one_rank(model, 3, 7);
  Mixture mixture(options, "mlp");
  LonelyMesh mesh;
  Bench bench(passes_of(mixture), options, mesh, mesh);
  for (const Param* param : bench.params())
    if (gate == Gate::zero && param->name == "mlp.gate.weight")
      set_numbers(param->value, Values(static_cast<std::size_t>(param->value.num_elements()), 0.0));
  const Oracle oracle(spec, bench);
  for (const BackwardKind kind : {BackwardKind::fused, BackwardKind::split})
    EXPECT_EQ(bench.run(kind), bench.measured(kind)) << "memory depends on what the router chose";
  bench.forward();
  std::vector<int> rows(static_cast<std::size_t>(spec.num_experts), 0);
  for (std::int64_t n = 0; n < options.num_tokens(); ++n) {
    const Values expected = oracle.output(row_of(bench.x(), n)), actual = row_of(bench.y(), n),
                 weights = oracle.weights_of_experts(row_of(bench.x(), n));
    for (std::size_t e = 0; e < weights.size(); ++e) rows[e] += weights[e] > 0 ? 1 : 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(actual[i], expected[i], 1e-10 * (1 + std::abs(expected[i]))) << "token " << n << ", " << i;
  }
  EXPECT_TRUE(spec.num_experts == spec.num_experts_per_tok || std::ranges::min(rows) < std::ranges::max(rows))
      << "equal loads hide faults";
}

// Claim (parity): A mixture of experts computes what a dense layer of all its experts computes, in which those that a
//   token did not choose have the weight zero.
// Bound: 1e-10 in float64.
// Tests: MixtureOfExperts
TEST(MixtureOfExperts, EqualsADenseLayerOfAllExperts) {
  expect_output_of_oracle(small_mixture().mixture);
  expect_output_of_oracle(small_gated_mixture().mixture);
  expect_output_of_oracle({.num_experts = 12, .num_experts_per_tok = 3, .moe_intermediate_size = 4});
  expect_output_of_oracle({.num_experts = 1, .num_experts_per_tok = 1, .moe_intermediate_size = 6});
  expect_output_of_oracle({.num_experts = 40,
                           .num_experts_per_tok = 1,
                           .moe_intermediate_size = 3,
                           .scoring_func = RouterScores::sigmoid,
                           .routed_scaling_factor = 2.5});
}

// A router of zeros scores all experts the same: every token goes to the first ones, and the others have no row. That
// takes the memory that was planned for any choice.
TEST(MixtureOfExperts, EveryTokenMayChooseTheSameExperts) {
  for (const std::int64_t k : {1, 2, 5}) {
    MixtureSpec spec = small_mixture().mixture;
    spec.num_experts_per_tok = k;
    expect_output_of_oracle(spec, Gate::zero);
  }
}

/// Forward passes of training, of which `places` tells the positions.
Passes training_passes(Mixture& mixture, std::vector<std::int32_t>& places) {
  Passes passes = passes_of(mixture);
  passes.forward = [forward = passes.forward, &places](Context& context, Tensor x, Tensor y, Stash& stash) {
    context.microbatch.places = {reinterpret_cast<std::byte*>(places.data()), DType::int32, {std::ssize(places)}};
    context.microbatch.needs_gradient = true;
    forward(context, x, y, stash);
  };
  return passes;
}

/// weights[n][e] of the T tokens of a sequence: those of dropped rows become zero. Returns how many there are.
int drop(std::span<Values> weights, std::size_t e, std::int64_t capacity, bool by_score) {
  std::vector<Values*> rows;
  for (Values& of_token : weights)
    if (of_token[e] > 0) rows.push_back(&of_token);
  if (by_score) std::ranges::stable_sort(rows, [&](const Values* a, const Values* b) { return (*a)[e] > (*b)[e]; });
  for (std::size_t i = static_cast<std::size_t>(capacity); i < rows.size(); ++i) (*rows[i])[e] = 0;
  return static_cast<int>(std::max<std::int64_t>(0, std::ssize(rows) - capacity));
}

// An expert with a capacity takes the first rows of a sequence, by position or by score. A dropped row adds nothing,
// and the other weights of its token stay as they are.
TEST(MixtureOfExperts, DropsRowsBeyondTheCapacity) {
  constexpr std::int64_t B = 3, T = 7, capacity = 3;
  for (const bool by_score : {false, true})
    for (const bool normalises : {false, true}) {
      ModelSpec model = small_llama();
      model.mixture = {.num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 5};
      model.mixture.norm_topk_prob = normalises;
      LayerOptions options = one_rank(model, B, T);
      options.expert_capacity = capacity;
      options.drops_by_score = by_score;
      std::vector<std::int32_t> places(static_cast<std::size_t>(B * T));
      std::iota(places.begin(), places.end(), 1);
      Mixture mixture(options, "mlp");
      LonelyMesh mesh;
      Bench bench(training_passes(mixture, places), options, mesh, mesh);
      const Oracle oracle(model.mixture, bench);
      for (const BackwardKind kind : {BackwardKind::fused, BackwardKind::split})
        EXPECT_EQ(bench.run(kind), bench.measured(kind)) << "memory depends on what is dropped";
      bench.forward();
      std::vector<Values> weights;
      for (std::int64_t n = 0; n < B * T; ++n) weights.push_back(oracle.weights_of_experts(row_of(bench.x(), n)));
      int num_dropped = 0;
      for (std::size_t b = 0; b < B; ++b)
        for (std::size_t e = 0; e < 4; ++e)
          num_dropped += drop(std::span(weights).subspan(b * T, T), e, capacity, by_score);
      EXPECT_GT(num_dropped, 2);
      for (std::int64_t n = 0; n < B * T; ++n) {
        const Values expected = oracle.output(row_of(bench.x(), n), weights[static_cast<std::size_t>(n)]),
                     actual = row_of(bench.y(), n);
        for (std::size_t i = 0; i < expected.size(); ++i)
          EXPECT_NEAR(actual[i], expected[i], 1e-10 * (1 + std::abs(expected[i]))) << "token " << n << ", " << i;
      }
      std::string worst;
      EXPECT_LT(finite_difference_error(bench, worst), 1e-7) << worst;
    }
}

}  // namespace
}  // namespace echelon::test
