#include "parity/training_run.h"

#include "engine/lr_schedule.h"
#include "ops/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <cmath>

namespace echelon::testing {

std::unique_ptr<Trajectory> run_training(const RunConfig& config, const Backends& backends) {
  const Blueprint blueprint(config);
  auto trajectory = std::make_unique<Trajectory>();
  const FormulaBatches batches(config.model.vocab_size, true), validation(config.model.vocab_size, false);
  const auto rank_main = [&](Mesh& plain_mesh) {
    const std::unique_ptr<Ops> ops = backends.make_ops ? backends.make_ops() : make_cpu_ops({});
    const std::unique_ptr<Mesh> wrapped = backends.wrap_mesh ? backends.wrap_mesh(plain_mesh) : nullptr;
    Mesh& mesh = wrapped ? *wrapped : plain_mesh;
    RankRun run(blueprint, mesh, *ops);
    run.model().initialize(config.training.seed, *ops);
    for (std::int64_t step = 1; step <= config.training.steps; ++step) {
      if (step == 1)
        run.step().observe_gradients([&](RankModel& model, double factor) { trajectory->first_gradients.add_gradients(model, *ops, factor); });
      else
        run.step().observe_gradients({});
      const OptimizerConfig& adamw = config.optimizer;
      const StepInput input = {.batches = &batches,
                               .batch = step - 1,
                               .adamw = {.lr = learning_rate(config, step),
                                         .beta1 = adamw.beta1,
                                         .beta2 = adamw.beta2,
                                         .eps = adamw.eps,
                                         .weight_decay = adamw.weight_decay,
                                         .step = step},
                               .max_norm = config.training.max_norm};
      const StepResult result = run.step().run(ProgramKind::training, input);
      if (mesh.rank() == 0) {
        trajectory->losses.push_back(result.loss);
        trajectory->grad_norms.push_back(result.grad_norm);
      }
    }
    const StepResult result = run.step().run(ProgramKind::evaluation, {.batches = &validation, .batch = 1000, .adamw = {}});
    if (mesh.rank() == 0) trajectory->validation_loss = result.loss;
    trajectory->values.add_values(run.model(), *ops);
    if (backends.at_end) backends.at_end(run, mesh, *ops);
  };
  backends.run_ranks ? backends.run_ranks(blueprint.mesh(), rank_main) : run_thread_ranks(blueprint.mesh(), {}, rank_main);
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

double root_mean_square(const TensorCollection& tensors) {
  double squares = 0, count = 0;
  for (const auto& [name, numbers] : tensors.tensors())
    for (const double number : numbers) {
      squares += number * number;
      count += 1;
    }
  return std::sqrt(squares / count);
}

}  // namespace echelon::testing
