// Steps that are recorded as a graph and replayed give the bits of steps that are enqueued action by action.
#include "base/error.h"
#include "comm/thread/thread_world.h"
#include "cuda/cuda_backend.h"
#include "cuda/emulated/runtime.h"
#include "engine/layout_run.h"
#include "engine/run_device.h"
#include "engine/tensor_collection.h"
#include "ops/forwarding_ops.h"
#include "parity/layout.h"
#include "parity/training_run.h"

#include <gmock/gmock.h>

namespace echelon::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t num_steps = 6;

RunConfig graphs_config(const Layout& layout) {
  RunConfig config = config_of(layout);
  config.training.dtype = DType::bfloat16;
  config.optimizer.moments_dtype = DType::bfloat16;  // whose rounding is another in every step
  config.optimizer.store_param_remainders = true;
  config.training.steps = num_steps;
  config.lr_scheduler.warmup_steps = 3;
  config.training.seq_len = layout.seq_len > 0 ? layout.seq_len : 4;
  config.training.micro_batch_size = 1;
  config.training.global_batch_size = layout.microbatches * layout.replicate * layout.shard;
  return config;
}

struct Steps {
  std::vector<StepResult> results;  // of rank 0, and so is:
  std::map<Group, std::int64_t> sent;
  TensorCollection weights;
  emulated::Activity activity;  // of all ranks
};

std::unique_ptr<Backend> gpus(int count) {
  emulated::set_num_devices(count);
  std::string reason;
  return cuda::make_cuda_backend(reason);
}

std::unique_ptr<Steps> steps_of(const RunConfig& config, int num_gpus, Targets targets = Targets::unequal) {
  const std::unique_ptr<Backend> backend = gpus(num_gpus);
  const Blueprint blueprint(config);
  const FormulaBatches batches(config, targets);
  auto steps = std::make_unique<Steps>();
  const emulated::Activity before = emulated::activity();
  run_thread_ranks(blueprint.mesh(), {.timeout_seconds = 60}, [&](Mesh& host) {
    const std::unique_ptr<RankDevice> device = open_device(*backend, blueprint, host, 1);
    RankRun run(blueprint, device->mesh(), device->ops(), device->memory(), recorder_of(*device, config));
    run.model().initialize(config.training.seed, device->ops());
    LossScaler scaler(config);
    for (std::int64_t step = 1; step <= num_steps; ++step) {
      const StepResult result = run.step().run(ProgramKind::training, training_input(config, batches, step, scaler));
      scaler.ended_step(result);
      if (host.rank() == 0) steps->results.push_back(result);
      if (step == 3)
        (void)run.step().run(ProgramKind::evaluation, {.batches = &batches, .first_sequence = 10000, .adamw = {}});
    }
    steps->weights.add_values(run.model(), device->ops());
    if (host.rank() == 0) steps->sent = device->mesh().sent_bytes();
  });
  const emulated::Activity after = emulated::activity();
  steps->activity = {after.num_enqueued - before.num_enqueued, after.num_captures - before.num_captures,
                     after.num_graph_launches - before.num_graph_launches};
  emulated::set_num_devices(1);
  return steps;
}

std::vector<StepResult> expect_same_bits_when_replayed(RunConfig config, Targets targets = Targets::unequal) {
  const int num_ranks = config.mesh_shape().num_ranks();
  const auto expected = steps_of(config, num_ranks, targets);
  config.training.cuda_graphs = true;
  const auto actual = steps_of(config, num_ranks, targets);
  for (std::size_t step = 0; step < num_steps; ++step) {
    EXPECT_EQ(actual->results[step].loss, expected->results[step].loss) << step;
    EXPECT_EQ(actual->results[step].grad_norm, expected->results[step].grad_norm) << step;
    EXPECT_EQ(actual->results[step].num_targets, expected->results[step].num_targets) << step;
    EXPECT_EQ(actual->results[step].is_skipped, expected->results[step].is_skipped) << step;
  }
  EXPECT_EQ(actual->weights.tensors(), expected->weights.tensors());
  if (config.data.reset_attention_mask) {  // a graph sends all rows, those that no query sees too
    config.training.cuda_graphs = config.data.reset_attention_mask = false;
    EXPECT_NE(actual->sent, expected->sent);
    EXPECT_EQ(actual->sent, steps_of(config, num_ranks, targets)->sent);
  } else {
    EXPECT_EQ(actual->sent, expected->sent);
  }
  EXPECT_EQ(expected->activity.num_captures, 0);
  EXPECT_EQ(actual->activity.num_captures, num_ranks);
  EXPECT_EQ(actual->activity.num_graph_launches, num_ranks * (num_steps - 1));  // the first step warms up
  // Both enqueue the initial weights, an evaluation and two steps.
  EXPECT_LT(actual->activity.num_enqueued, expected->activity.num_enqueued * 2 / 3);
  return actual->results;
}

TEST(Graphs, ReplayTheStepsOfOneRank) { (void)expect_same_bits_when_replayed(graphs_config({.layers = 1})); }

TEST(Graphs, ReplayTheStepsOfRanksThatTalkByNccl) {
  (void)expect_same_bits_when_replayed(graphs_config({.shard = 2, .family = Family::gpt2, .zero = 3, .layers = 1}));
}

// Parts of a graph need not run beside each other, and what one communicator does in each layer is between the parts of
// what another one does beside them.
TEST(Graphs, ReplayOperationsOfSeveralCommunicatorsInOneOrder) {
  (void)expect_same_bits_when_replayed(graphs_config({.shard = 2, .tp = 2, .zero = 3, .layers = 2}));
}

// A rank's transfers of a hop are one launch of one communicator: in a graph a rank that sends first would wait for one
// that does, too.
TEST(Graphs, ReplayRings) {
  for (const int cp : {2, 3})
    (void)expect_same_bits_when_replayed(graphs_config({.layers = 1, .cp = cp, .seq_len = 7}));
}

TEST(Graphs, ReplayRingsBetweenTheOperationsOfOtherCommunicators) {
  (void)expect_same_bits_when_replayed(
      graphs_config({.shard = 2, .tp = 2, .zero = 3, .layers = 2, .cp = 2, .seq_len = 8}));
}

TEST(Graphs, ReplayEveryMethodOfContextParallelism) {
  for (const ContextMethod method : {ContextMethod::all_gather, ContextMethod::ulysses})
    (void)expect_same_bits_when_replayed(graphs_config({.layers = 1, .cp = 2, .seq_len = 7, .method = method}));
  (void)expect_same_bits_when_replayed(
      graphs_config({.layers = 1, .cp = 4, .seq_len = 13, .method = ContextMethod::ulysses_ring, .ulysses = 2}));
}

// Which rows a query sees differs from step to step.
TEST(Graphs, SendAllRowsOfDocuments) {
  for (const ContextMethod method : {ContextMethod::ring, ContextMethod::all_gather})
    (void)expect_same_bits_when_replayed(
        graphs_config({.layers = 1, .documents = true, .cp = 2, .seq_len = 13, .method = method}));
}

// A step overflows that is enqueued action by action, and one that is replayed.
TEST(Graphs, SkipStepsWhoseGradientsOverflow) {
  RunConfig config = graphs_config({.layers = 1});
  config.training.dtype = DType::float16;
  config.optimizer.moments_dtype.reset();
  config.optimizer.store_param_remainders = false;
  config.grad_scaler = {.init_scale = 0x1p30, .growth_factor = 0x1p18, .backoff_factor = 0x1p-18, .growth_interval = 3};
  std::vector<bool> skipped;
  for (const StepResult& result : expect_same_bits_when_replayed(config, Targets::of_one_sequence))
    skipped.push_back(result.is_skipped);
  EXPECT_EQ(skipped, (std::vector{true, false, false, false, true, false}));
}

std::string outcome_of_steps(const RunConfig& config, int num_gpus) {
  try {
    (void)steps_of(config, num_gpus);
  } catch (const Error& error) {
    emulated::set_num_devices(1);
    return error.what();
  }
  return "";
}

TEST(Graphs, AreRefusedWhereTheHostArrangesWhatRanksExchange) {
  RunConfig config = graphs_config({.replicate = 2, .layers = 1});
  config.training.cuda_graphs = true;
  EXPECT_THAT(outcome_of_steps(config, 1),
              HasSubstr("training.cuda_graphs = true needs a GPU of its own for each rank, and rank"));
}

TEST(Graphs, AreRefusedForPipelines) {
  RunConfig config = graphs_config({.pp = 2, .layers = 1});
  config.training.cuda_graphs = true;
  EXPECT_THAT(outcome_of_steps(config, 2), HasSubstr("training.cuda_graphs = true is not supported with pipelines"));
}

/// Waits for the device where a step never does.
class ImpatientOps final : public ForwardingOps {
 public:
  explicit ImpatientOps(Ops& inner) : ForwardingOps(inner) {}
  void perform(const Operation& operation) override {
    if (operation.kind() == OpKind::sum_of_squares) inner().finish();
    inner().perform(operation);
  }
};

enum class Fault : std::uint8_t { in_recording, between_replays };

/// Of ranks with a GPU each, the last of which fails.
std::string outcome_of_fault(Fault fault, RunConfig config) {
  const int num_ranks = config.mesh_shape().num_ranks();
  const std::unique_ptr<Backend> backend = gpus(num_ranks);
  config.training.cuda_graphs = true;
  const Blueprint blueprint(config);
  const FormulaBatches batches(config, Targets::all);
  std::string outcome;
  try {
    run_thread_ranks(blueprint.mesh(), {.timeout_seconds = 60}, [&](Mesh& host) {
      const bool fails = host.rank() == num_ranks - 1;
      const std::unique_ptr<RankDevice> device = open_device(*backend, blueprint, host, 1);
      ImpatientOps impatient(device->ops());
      Ops& ops = fails && fault == Fault::in_recording ? impatient : device->ops();
      RankRun run(blueprint, device->mesh(), ops, device->memory(), recorder_of(*device, config));
      run.model().initialize(1, ops);
      const LossScaler scaler(config);
      for (std::int64_t step = 1; step <= 4; ++step) {
        if (fails && step == 4) throw Error("left between steps");
        (void)run.step().run(ProgramKind::training, training_input(config, batches, step, scaler));
      }
    });
  } catch (const Error& error) {
    outcome = error.what();
  }
  emulated::set_num_devices(1);
  return outcome;
}

TEST(Graphs, NameTheActionThatCannotBeRecorded) {
  EXPECT_EQ(outcome_of_fault(Fault::in_recording, graphs_config({.layers = 1})),
            "rank 0: clip: work on the device: cudaErrorStreamCaptureUnsupported (cudaErrorStreamCaptureUnsupported)");
}

TEST(Graphs, AreGivenUpBeforeTheCommunicatorsWhoseWorkTheyHold) {
  const RunConfig config = graphs_config({.shard = 2, .zero = 3, .layers = 1});
  EXPECT_THAT(outcome_of_fault(Fault::in_recording, config),
              HasSubstr("rank 1: clip: work on the device: cudaErrorStreamCaptureUnsupported"));
  EXPECT_EQ(outcome_of_fault(Fault::between_replays, config), "rank 1: left between steps");
}

}  // namespace
}  // namespace echelon::testing
