// The head over several chunks of tokens, against the plain loops of its formula.
#include "nn/decoder/head.h"

#include "nn/bench.h"
#include "nn/models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace echelon::test {
namespace {

struct Expected {
  double loss_sum = 0;
  std::vector<double> dnormed, dw;
};

// loss = sum of log sum_j exp(x . w_j) - x . w_target over rows with a target; its gradients times `scale`.
Expected naive_loss(const std::vector<double>& x, const std::vector<double>& w,
                    const std::vector<std::int32_t>& targets, std::size_t D, double scale) {
  const std::size_t V = w.size() / D;
  Expected expected = {0, std::vector<double>(x.size(), 0.0), std::vector<double>(w.size(), 0.0)};
  std::vector<double> logits(V);
  for (std::size_t n = 0; n < targets.size(); ++n) {
    if (targets[n] == ignored_target) continue;
    double sum = 0;
    for (std::size_t j = 0; j < V; ++j) {
      logits[j] = 0;
      for (std::size_t d = 0; d < D; ++d) logits[j] += x[n * D + d] * w[j * D + d];
      sum += std::exp(logits[j]);
    }
    const auto target = static_cast<std::size_t>(targets[n]);
    expected.loss_sum += std::log(sum) - logits[target];
    for (std::size_t j = 0; j < V; ++j) {
      const double dlogit = scale * (std::exp(logits[j]) / sum - (j == target ? 1.0 : 0.0));
      for (std::size_t d = 0; d < D; ++d) {
        expected.dnormed[n * D + d] += dlogit * w[j * D + d];
        expected.dw[j * D + d] += dlogit * x[n * D + d];
      }
    }
  }
  return expected;
}

std::vector<double> rms_normed(const std::vector<double>& x, const std::vector<double>& w, std::size_t D, double eps) {
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += D) {
    double mean_square = eps;
    for (std::size_t d = 0; d < D; ++d) mean_square += x[row + d] * x[row + d] / static_cast<double>(D);
    for (std::size_t d = 0; d < D; ++d) y[row + d] = x[row + d] / std::sqrt(mean_square) * w[d];
  }
  return y;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0.0 : 1.0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// 3,007 tokens of 1,500 logits each do not exist at once.
LayerOptions many_logits() {
  ModelSpec model = small_llama();
  model.hidden_size = 4;
  model.vocab_size = 1500;
  return one_rank(model, 1, 3007);
}

TEST(Head, SeveralChunksGiveTheWholeLoss) {
  const LayerOptions options = many_logits();
  const std::unique_ptr<Head> head = make_head(options);
  LonelyMesh mesh;
  Bench bench(passes_of(*head), options, mesh, mesh);
  const std::int64_t all_logits_bytes = options.num_tokens() * options.model.vocab_size * 8;
  for (const BackwardKind kind : {BackwardKind::fused, BackwardKind::split}) {
    const RegionBytes used = bench.run(kind);
    EXPECT_EQ(used, bench.measured(kind));
    EXPECT_LT(used.sum(), all_logits_bytes) << "all logits are there at once";

    const Param* norm = bench.params()[0];
    const Param* w = bench.params()[1];
    const std::vector<double> normed =
        rms_normed(numbers_of(bench.x()), numbers_of(norm->value), 4, options.model.norm_eps);
    const Expected expected =
        naive_loss(normed, numbers_of(w->value), random_batch(options).targets, 4, Bench::gradient_scale);
    EXPECT_NEAR(bench.loss_sum() / expected.loss_sum, 1.0, 1e-13);
    EXPECT_LT(largest_difference(numbers_of(w->grad), expected.dw), 1e-11);
  }
}

TEST(Head, LogitsAreThoseOfTheLoss) {
  const LayerOptions options = one_rank(small_gpt2());
  const std::unique_ptr<Head> head = make_head(options);
  LonelyMesh mesh;
  Bench bench(passes_of(*head), options, mesh, mesh);
  bench.forward();

  Arena arena(1 << 16);
  Stack workspace = arena.region(0, 1 << 16);
  const Tensor logits = workspace.take(DType::float64, {options.num_tokens(), head->num_columns()});
  Context context = {bench.ops(), mesh, workspace, {}};
  EXPECT_EQ(head->first_column(), 0);
  EXPECT_EQ(head->num_columns(), options.model.vocab_size);
  head->logits(context, bench.x(), logits);

  double loss_sum = 0;
  const std::vector<std::int32_t> targets = random_batch(options).targets;
  for (std::int64_t n = 0; n < options.num_tokens(); ++n) {
    const double* row = logits.as<double>() + n * head->num_columns();
    double sum = 0;
    for (std::int64_t j = 0; j < head->num_columns(); ++j) sum += std::exp(row[j]);
    if (const std::int32_t target = targets[static_cast<std::size_t>(n)]; target != ignored_target)
      loss_sum += std::log(sum) - row[target];
  }
  EXPECT_NEAR(loss_sum, bench.loss_sum(), 1e-12);
}

}  // namespace
}  // namespace echelon::test
