#include "parity/training_run.h"

#include "comm/delayed/delayed_mesh.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/delayed/delayed_ops.h"

#include <gtest/gtest.h>

#include <cmath>

namespace echelon::testing {
namespace {

class TrajectoryWatcher final : public RunWatcher {
 public:
  TrajectoryWatcher(const RunConfig& config, const RunOptions& options, Trajectory& trajectory)
      : options_(options), validation_(config.model.vocab_size, false), trajectory_(trajectory) {}

  void has_gradients(const RankView& rank, std::int64_t step, double factor) override {
    if (step == 1) trajectory_.first_gradients.add_gradients(rank.run.model(), rank.ops, factor);
  }
  void ended_step(const RankView& rank, std::int64_t /*step*/, const StepResult& result) override {
    if (rank.mesh.rank() != 0) return;
    trajectory_.losses.push_back(result.loss);
    trajectory_.grad_norms.push_back(result.grad_norm);
  }
  void ends(const RankView& rank) override {
    const StepResult result = rank.run.step().run(ProgramKind::evaluation, {.batches = &validation_, .batch = 1000, .adamw = {}});
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
  const FormulaBatches batches(config.model.vocab_size, true);
  auto trajectory = std::make_unique<Trajectory>();
  TrajectoryWatcher watcher(config, options, *trajectory);
  run_layout({.blueprint = blueprint, .batches = batches, .num_steps = config.training.steps, .run_ranks = options.run_ranks, .interpose = options.interpose},
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

void expect_equal(const Trajectory& actual, const Trajectory& expected, double scalar_tolerance, double tensor_tolerance, double lr) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], scalar_tolerance * std::abs(expected.losses[step])) << "loss of step " << step + 1;
    EXPECT_NEAR(actual.grad_norms[step], expected.grad_norms[step], scalar_tolerance * std::abs(expected.grad_norms[step])) << "norm of step " << step + 1;
  }
  EXPECT_NEAR(actual.validation_loss, expected.validation_loss, scalar_tolerance * std::abs(expected.validation_loss));
  const Difference gradients = worst_difference(actual.first_gradients, expected.first_gradients, root_mean_square(expected.first_gradients));
  EXPECT_LE(gradients.error, tensor_tolerance) << "gradient of " << gradients.name;
  const Difference values = worst_difference(actual.values, expected.values, lr);
  EXPECT_LE(values.error, tensor_tolerance) << "weights of " << values.name;
}

std::unique_ptr<RankInterposer> delayed(Ops& /*ops*/, Mesh& mesh) { return std::make_unique<DelayedRank>(mesh); }

}  // namespace echelon::testing
