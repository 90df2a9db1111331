#include "parity/training_run.h"

#include "comm/delayed/delayed_mesh.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/delayed/delayed_ops.h"

#include <gtest/gtest.h>

#include <cmath>

namespace echelon::testing {
namespace {

class TrajectoryWatcher final : public RunObserver {
 public:
  TrajectoryWatcher(const RunConfig& config, const RunOptions& options, Trajectory& trajectory)
      : options_(options), validation_(config, Targets::all), trajectory_(trajectory) {}

  void has_gradients(const RankView& rank, std::int64_t step, double factor) override {
    if (step == 1) trajectory_.first_gradients.add_gradients(rank.run.model(), rank.ops, factor);
  }
  void ended_step(const RankView& rank, std::int64_t step, const StepResult& result) override {
    if (options_.after_step) options_.after_step(rank, step);
    if (rank.mesh.rank() != 0) return;
    trajectory_.losses.push_back(result.loss);
    trajectory_.grad_norms.push_back(result.grad_norm);
    trajectory_.router_sums.push_back(rank.run.step().router_sums());
    trajectory_.exchange_counts.push_back(rank.run.step().exchange_counts());
  }
  void ends(const RankView& rank) override {
    constexpr std::int64_t first_of_validation = 1'000'000;  // far from those of training
    const StepResult result = rank.run.step().run(
        ProgramKind::evaluation, {.batches = &validation_, .first_sequence = first_of_validation, .adamw = {}});
    if (rank.mesh.rank() == 0) trajectory_.validation_loss = result.loss;
    trajectory_.values.add_values(rank.run.model(), rank.ops);
    if (options_.at_end) options_.at_end(rank);
  }

 private:
  const RunOptions& options_;
  FormulaBatches validation_;
  Trajectory& trajectory_;
};

class DelayedRank final : public RankInterposer {
 public:
  explicit DelayedRank(Mesh& mesh) : ops_(make_cpu_ops({}), 1), mesh_(mesh, 1) {}
  [[nodiscard]] Ops& ops() override { return ops_; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }

 private:
  DelayedOps ops_;
  DelayedMesh mesh_;
};

}  // namespace

std::unique_ptr<Trajectory> run_training(const RunConfig& config, const RunOptions& options) {
  const Blueprint blueprint = options.schedule ? Blueprint(config, *options.schedule) : Blueprint(config);
  const FormulaBatches batches(config, options.targets);
  auto trajectory = std::make_unique<Trajectory>();
  TrajectoryWatcher watcher(config, options, *trajectory);
  run_layout({.blueprint = blueprint,
              .batches = batches,
              .num_steps = config.training.steps,
              .run_ranks = options.run_ranks,
              .interpose = options.interpose,
              .backend = options.backend},
             watcher);
  return trajectory;
}

Difference worst_difference(const TensorCollection& a, const TensorCollection& b, double floor) {
  Difference worst;
  EXPECT_EQ(a.tensors().size(), b.tensors().size());
  for (const auto& [name, expected] : b.tensors()) {
    const auto found = a.tensors().find(name);
    if (found == a.tensors().end() || found->second.size() != expected.size()) return {INFINITY, name + " (missing)"};
    for (const int count : a.counts().at(name))
      if (count != 1) return {INFINITY, name + " (a number that came not once)"};
    double largest = floor, error = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      const double difference = std::abs(found->second[i] - expected[i]);
      if (!(difference <= error)) error = difference;  // a NaN counts as different
    }
    if (!(error / largest <= worst.error)) worst = {error / largest, name};
  }
  return worst;
}

namespace {

Difference worst_difference(const std::vector<double>& actual, const std::vector<double>& expected,
                            const std::string& name) {
  if (actual.size() != expected.size()) return {INFINITY, name + " (steps are missing)"};
  Difference worst;
  for (std::size_t step = 0; step < expected.size(); ++step) {
    const double difference = std::abs(actual[step] - expected[step]);
    const double error = difference == 0          ? 0
                         : std::isnan(difference) ? INFINITY
                                                  : difference / std::abs(expected[step]);
    if (error > worst.error) worst = {error, name + " of step " + std::to_string(step + 1)};
  }
  return worst;
}

}  // namespace

Errors errors_of(const Trajectory& actual, const Trajectory& expected, double lr) {
  Errors errors;
  errors.loss = worst_difference(actual.losses, expected.losses, "loss");
  const Difference validation =
      worst_difference({actual.validation_loss}, {expected.validation_loss}, "validation loss");
  if (!(validation.error <= errors.loss.error)) errors.loss = validation;
  errors.grad_norm = worst_difference(actual.grad_norms, expected.grad_norms, "gradient norm");
  errors.gradient =
      worst_difference(actual.first_gradients, expected.first_gradients, root_mean_square(expected.first_gradients));
  errors.weight = worst_difference(actual.values, expected.values, lr);
  return errors;
}

namespace {

/// Loads are whole numbers, and losses sums over all tokens.
void expect_equal_routers(const Trajectory& actual, const Trajectory& expected, double tolerance) {
  ASSERT_EQ(actual.router_sums.size(), expected.router_sums.size());
  for (std::size_t step = 0; step < expected.router_sums.size(); ++step) {
    const std::vector<double>&a = actual.router_sums[step], &b = expected.router_sums[step];
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < b.size(); ++i) {
      const double error = b[i] == std::floor(b[i]) ? 0 : tolerance * (1 + std::abs(b[i]));
      EXPECT_LE(std::abs(a[i] - b[i]), error) << "step " << step + 1 << ", router's sum " << i;
    }
  }
}

}  // namespace

void expect_equal(const Trajectory& actual, const Trajectory& expected, double scalar_tolerance,
                  double tensor_tolerance, double lr) {
  const Errors errors = errors_of(actual, expected, lr);
  EXPECT_LE(errors.loss.error, scalar_tolerance) << errors.loss.name;
  expect_equal_routers(actual, expected, scalar_tolerance);
  EXPECT_LE(errors.grad_norm.error, scalar_tolerance) << errors.grad_norm.name;
  EXPECT_LE(errors.gradient.error, tensor_tolerance) << "gradient of " << errors.gradient.name;
  EXPECT_LE(errors.weight.error, tensor_tolerance) << "weights of " << errors.weight.name;
}

std::unique_ptr<RankInterposer> delayed(Ops& /*ops*/, Mesh& mesh) { return std::make_unique<DelayedRank>(mesh); }

}  // namespace echelon::testing
