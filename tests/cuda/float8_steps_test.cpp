// Steps in float8 whose kernels leave the largest magnitudes of what they write give the bits of steps whose
// matmuls look for them: in backward passes that recompute, on shards of tensors, and in graphs that are replayed.
#include "comm/thread/thread_world.h"
#include "cuda/cuda_backend.h"
#include "cuda/emulated/runtime.h"
#include "engine/layout_run.h"
#include "engine/run_device.h"
#include "engine/tensor_collection.h"
#include "ops/forwarding_ops.h"
#include "parity/layout.h"
#include "parity/training_run.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace echelon::testing {
namespace {

constexpr std::int64_t num_float8_steps = 3;

/// Matmuls know of no largest magnitude.
class WithoutAmaxes final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  void perform(const Operation& operation) override {
    const auto* const matmul = operation.get_if<MatmulArgs>();
    if (matmul == nullptr) return inner().perform(operation);
    MatmulArgs args = *matmul;
    args.a = args.a.without_amax();
    args.b = args.b.without_amax();
    args.a_rounded.finds_amax = args.b_rounded.finds_amax = false;
    inner().perform(args);
  }
};

RunConfig float8_steps_config(const Layout& layout) {
  RunConfig config = in_float8(config_of(layout));
  config.training.dtype = DType::bfloat16;
  config.training.recompute = layout.recompute;
  config.training.steps = num_float8_steps;
  return config;
}

struct Float8Steps {
  std::vector<StepResult> results;  // of rank 0
  TensorCollection weights;
  std::int64_t num_bytes_moved = 0;  // by kernels of all ranks
};

enum class Amaxes : std::uint8_t { left, looked_for };

std::unique_ptr<Float8Steps> float8_steps_of(const RunConfig& config, Amaxes amaxes) {
  std::string reason;
  emulated::set_num_devices(config.mesh_shape().num_ranks());
  const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
  const Blueprint blueprint(config);
  const FormulaBatches batches(config, Targets::unequal);
  auto steps = std::make_unique<Float8Steps>();
  const std::int64_t moved_before = emulated::num_bytes_moved;
  run_thread_ranks(blueprint.mesh(), {.timeout_seconds = 60}, [&](Mesh& host) {
    const std::unique_ptr<RankDevice> device = open_device(*backend, blueprint, host, 1);
    WithoutAmaxes without(device->ops());
    Ops& ops = amaxes == Amaxes::left ? device->ops() : without;
    RankRun run(blueprint, device->mesh(), ops, device->memory(), recorder_of(*device, config));
    run.model().initialize(config.training.seed, ops);
    LossScaler scaler(config);
    for (std::int64_t step = 1; step <= num_float8_steps; ++step) {
      const StepResult result = run.step().run(ProgramKind::training, training_input(config, batches, step, scaler));
      if (host.rank() == 0) steps->results.push_back(result);
      if (step == 2)
        (void)run.step().run(ProgramKind::evaluation, {.batches = &batches, .first_sequence = 10000, .adamw = {}});
    }
    steps->weights.add_values(run.model(), device->ops());
  });
  steps->num_bytes_moved = emulated::num_bytes_moved - moved_before;
  emulated::set_num_devices(1);
  return steps;
}

void expect_same_steps(const Float8Steps& actual, const Float8Steps& expected) {
  for (std::size_t step = 0; step < num_float8_steps; ++step) {
    EXPECT_EQ(actual.results[step].loss, expected.results[step].loss) << step;
    EXPECT_EQ(actual.results[step].grad_norm, expected.results[step].grad_norm) << step;
  }
  EXPECT_EQ(actual.weights.tensors(), expected.weights.tensors());
}

const Layout float8_step_layouts[] = {{.layers = 2},
                                      {.family = Family::gpt2, .layers = 1},
                                      {.layers = 1, .recompute = whole_block},
                                      {.tp = 2, .layers = 1},
                                      {.tp = 2, .sequence_parallel = true, .family = Family::gpt2, .layers = 1},
                                      {.pp = 2, .schedule = PipelineSchedule::zb_h1, .layers = 2},
                                      {.shard = 2, .zero = 3, .layers = 1, .recompute = {BlockOperation::mlp}}};

TEST(CudaFloat8Steps, HaveTheBitsOfMatmulsThatLookForTheLargest) {
  for (const Layout& layout : float8_step_layouts) {
    SCOPED_TRACE(name_of(layout));
    const RunConfig config = float8_steps_config(layout);
    const auto actual = float8_steps_of(config, Amaxes::left), expected = float8_steps_of(config, Amaxes::looked_for);
    expect_same_steps(*actual, *expected);
    EXPECT_LT(actual->num_bytes_moved, expected->num_bytes_moved);
  }
}

TEST(CudaFloat8Steps, HaveTheSameBitsInGraphs) {
  RunConfig config = float8_steps_config({.layers = 2});
  const auto expected = float8_steps_of(config, Amaxes::looked_for);
  config.training.cuda_graphs = true;
  expect_same_steps(*float8_steps_of(config, Amaxes::left), *expected);
}

}  // namespace
}  // namespace echelon::testing
