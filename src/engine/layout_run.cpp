#include "engine/layout_run.h"

#include "comm/thread/thread_world.h"
#include "engine/lr_schedule.h"
#include "engine/run_device.h"

namespace echelon {
namespace {

void run_rank(const LayoutRun& layout, Backend& backend, Mesh& host, RunObserver& observer) {
  const RunConfig& config = layout.blueprint.config();
  const std::unique_ptr<RankDevice> device = open_device(backend, layout.blueprint, host, 1);
  const std::unique_ptr<RankInterposer> interposer =
      layout.interpose ? layout.interpose(device->ops(), device->mesh()) : nullptr;
  Mesh& mesh = interposer ? interposer->mesh() : device->mesh();
  Ops& ops = interposer ? interposer->ops() : device->ops();
  RankRun run(layout.blueprint, mesh, ops, device->memory());
  use_arena(*device, run.memory());
  if (interposer) interposer->attach(run);
  if (StepObserver* actions = interposer ? interposer->observer() : nullptr) run.step().observe_actions(*actions);
  run.model().initialize(config.training.seed, ops);
  const RankView rank = {run, mesh, ops};
  observer.starts(rank);
  LossScaler scaler(config);
  for (std::int64_t step = 1; step <= layout.num_steps; ++step) {
    run.step().observe_gradients([&](RankModel&, double factor) { observer.has_gradients(rank, step, factor); });
    const StepResult result =
        run.step().run(ProgramKind::training, training_input(config, layout.batches, step, scaler));
    scaler.ended_step(result);
    observer.ended_step(rank, step, result);
  }
  observer.ends(rank);
}

}  // namespace

void run_layout(const LayoutRun& layout, RunObserver& observer) {
  const DeviceChoice device = layout.blueprint.config().training.device;
  const std::unique_ptr<Backend> own =
      layout.backend == nullptr ? open_backend(device == DeviceChoice::automatic ? DeviceChoice::cpu : device)
                                : nullptr;
  Backend& backend = own ? *own : *layout.backend;
  const auto body = [&](Mesh& mesh) { run_rank(layout, backend, mesh, observer); };
  const MeshShape& shape = layout.blueprint.mesh();
  layout.run_ranks ? layout.run_ranks(shape, body) : run_thread_ranks(shape, {}, body);
}

StepInput training_input(const RunConfig& config, const BatchSource& batches, std::int64_t step,
                         const LossScaler& scaler) {
  const OptimizerConfig& optimizer = config.optimizer;
  return {.batches = &batches,
          .first_sequence = (step - 1) * config.training.global_batch_size,
          .adamw = {.lr = learning_rate(config, step),
                    .beta1 = optimizer.beta1,
                    .beta2 = optimizer.beta2,
                    .eps = optimizer.eps,
                    .weight_decay = optimizer.weight_decay,
                    .step = step - scaler.num_skipped(),
                    .seed = config.training.seed},
          .max_norm = config.training.max_norm,
          .loss_scale = scaler.scale()};
}

}  // namespace echelon
