// Layouts on ranks with GPUs, from the config to the updated weights, against one rank on a processor, in float64:
// losses, gradient norms, first gradients and weights, and the locks on memory and traffic. On the emulated device,
// which is slow: a few layouts, of every kind; each method of context parallelism once, with documents and a window.
#include "comm/thread/thread_world.h"
#include "cuda/cuda_backend.h"
#include "cuda/device/workspace.h"
#include "cuda/emulated/runtime.h"
#include "data/masked_batches.h"
#include "engine/layout_run.h"
#include "engine/run_device.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"

#include <gtest/gtest.h>
#include <nccl.h>

#include <atomic>

namespace echelon::testing {
namespace {

RunConfig small_config(const Layout& layout) {
  RunConfig config = config_of(layout);
  config.training.steps = 2;
  config.lr_scheduler.warmup_steps = 1;
  config.training.seq_len = layout.seq_len > 0 ? layout.seq_len : 8;
  config.training.micro_batch_size = 1;
  config.training.global_batch_size = layout.microbatches * layout.replicate * layout.shard;
  return config;
}

class OnGpus : public ::testing::TestWithParam<Layout> {
 protected:
  ~OnGpus() override { emulated::set_num_devices(1); }

  /// Devices of their own compute a step of each program before the first one, of tokens that mean nothing.
  static void expect_equals_one_processor(const Layout& layout, bool is_warmed_up) {
    const RunConfig config = small_config(layout);
    std::string reason;
    const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
    ASSERT_NE(backend, nullptr) << reason;
    const ProgramRuns runs = {.training = config.training.steps, .evaluation = 1};
    const std::int64_t before = is_warmed_up ? 1 : 0;
    const ProgramRuns with_warm_up = {.training = runs.training + before, .evaluation = runs.evaluation + before};
    std::atomic<std::int64_t> forward = 0, backward = 0;
    for (auto& pairs : emulated::num_pairs) pairs = 0;
    const auto at_end = [&](const RankView& rank) {
      expect_locks_hold(rank, runs);
      const AttentionPairs pairs = pairs_of(rank.run, with_warm_up);
      forward += pairs.forward;
      backward += pairs.backward;
    };
    const auto actual = run_training(config, {.at_end = at_end, .backend = backend.get()});
    if (!is_warmed_up || !layout.documents) {
      EXPECT_EQ(emulated::num_pairs[0], forward) << "pairs counted in attention's kernels against the documents";
      EXPECT_EQ(emulated::num_pairs[1], backward);
      EXPECT_EQ(emulated::num_pairs[2], backward);
    }
    expect_equal(*actual, *run_training(one_rank(config)), 1e-11, 1e-9, config.optimizer.lr);
  }
};

class SharedByAllRanks : public OnGpus {};
TEST_P(SharedByAllRanks, EqualOneProcessor) { expect_equals_one_processor(GetParam(), false); }

class OneForEachRank : public OnGpus {};
TEST_P(OneForEachRank, EqualOneProcessor) {
  emulated::set_num_devices(config_of(GetParam()).mesh_shape().num_ranks());
  expect_equals_one_processor(GetParam(), true);
}

using enum PipelineSchedule;
const Layout everything = {
    .shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .tied = true, .zero = 2, .layers = 2};

const Layout shared[] = {
    {.layers = 1},
    {.replicate = 2, .family = Family::gpt2, .layers = 1},
    {.shard = 2, .layers = 1},
    {.shard = 2, .zero = 2, .layers = 1},
    {.shard = 2, .family = Family::gpt2, .zero = 3, .layers = 2},
    {.replicate = 2, .shard = 2, .zero = 3, .reshard = ReshardAfterForward::step, .layers = 1},
    {.tp = 2, .family = Family::gpt2, .layers = 1},
    {.tp = 4, .sequence_parallel = true, .layers = 1},
    {.pp = 2, .microbatches = 3, .tied = true, .layers = 2},
    {.pp = 2, .schedule = interleaved_one_f_one_b, .virtual_stages = 2, .layers = 4},
    {.pp = 2, .schedule = zb_v, .microbatches = 4, .layers = 4},
    {.shard = 2, .tp = 2, .sequence_parallel = true, .zero = 2, .layers = 1, .experts = 6},
    {.shard = 2, .layers = 1, .experts = 4, .ep = 2, .bound = 0.5},
    {.shard = 2, .tp = 2, .sequence_parallel = true, .zero = 3, .layers = 1, .experts = 8, .ep = 4},
    {.tp = 2, .layers = 1, .documents = true},
    {.tp = 2, .layers = 1, .documents = true, .positions = true},
    {.family = Family::gpt2, .layers = 1, .documents = true, .positions = true},
    {.microbatches = 1, .family = Family::mistral, .layers = 1, .documents = true, .cp = 2, .window = 3, .seq_len = 7},
    {.layers = 1, .documents = true, .cp = 2, .balancer = LoadBalancer::packed, .seq_len = 13, .positions = true},
    {.family = Family::mistral,
     .layers = 1,
     .documents = true,
     .cp = 4,
     .balancer = LoadBalancer::per_document,
     .window = 5,
     .seq_len = 13,
     .method = ContextMethod::ulysses_ring,
     .ulysses = 2,
     .positions = true},
    everything};
const Layout own[] = {
    {.shard = 2, .zero = 3, .layers = 2},
    {.pp = 2, .schedule = zb_v, .microbatches = 4, .layers = 4},
    {.microbatches = 1, .layers = 1, .cp = 3, .balancer = LoadBalancer::striped, .seq_len = 7},
    {.family = Family::mistral,
     .layers = 1,
     .documents = true,
     .cp = 2,
     .balancer = LoadBalancer::packed,
     .window = 5,
     .seq_len = 13,
     .method = ContextMethod::all_gather},
    {.family = Family::mistral,
     .layers = 1,
     .documents = true,
     .cp = 2,
     .window = 5,
     .seq_len = 13,
     .method = ContextMethod::ulysses},
    {.tp = 2, .sequence_parallel = true, .microbatches = 1, .family = Family::qwen3, .layers = 1, .cp = 2},
    {.microbatches = 1, .family = Family::gpt2, .layers = 1, .documents = true, .cp = 4},
    {.shard = 2, .microbatches = 1, .zero = 3, .layers = 1, .cp = 2},
    {.pp = 2, .schedule = zb_h1, .microbatches = 2, .layers = 2, .cp = 2, .balancer = LoadBalancer::none},
    {.shard = 2, .layers = 2, .experts = 5, .dense_between = true},
    {.shard = 2, .layers = 1, .experts = 4, .ep = 2, .bound = 0.5},
    everything};

std::string test_name(const ::testing::TestParamInfo<Layout>& layout) { return name_of(layout.param); }
INSTANTIATE_TEST_SUITE_P(Gpus, SharedByAllRanks, ::testing::ValuesIn(shared), test_name);
INSTANTIATE_TEST_SUITE_P(Gpus, OneForEachRank, ::testing::ValuesIn(own), test_name);

// A pipeline's rank starts to receive the gradient before it computes what is sent for it, with kernels that are loaded
// then.
TEST_F(OnGpus, LoadNothingWhileTransfersAreUnderWay) {
  for (const PipelineSchedule schedule : {naive, one_f_one_b, zb_v}) {
    emulated::set_num_devices(2);
    emulated::set_waits_for_loads(true);
    expect_equals_one_processor({.pp = 2, .schedule = schedule, .microbatches = 3, .layers = 4}, true);
    emulated::set_waits_for_loads(false);
  }
}

// A kernel that is loaded holds the lock of its context until the device is idle, and NCCL's threads need it.
TEST_F(OnGpus, LoadNothingWhileNcclIsUnderWay) {
  emulated::set_num_devices(2);
  emulated::set_waits_for_loads(true);
  expect_equals_one_processor({.shard = 2, .zero = 3, .layers = 2}, true);
  emulated::set_waits_for_loads(false);
}

// Ranks that share a kv head too have a communicator before the first step.
TEST_F(OnGpus, ConnectNothingInAStep) {
  const RunConfig config = small_config({.tp = 4, .sequence_parallel = true, .layers = 1});
  ASSERT_LT(config.model.num_key_value_heads, 4);
  emulated::set_num_devices(4);
  std::string reason;
  const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
  int at_start = 0, at_end = 0;
  run_thread_ranks(config.mesh_shape(), {.timeout_seconds = 60}, [&](Mesh& host) {
    const Blueprint blueprint(config);
    const std::unique_ptr<RankDevice> device = open_device(*backend, blueprint, host, 1);
    host.comm({world_axes}).barrier().wait();
    if (host.rank() == 0) at_start = emulated::num_communicators();
    RankRun run(blueprint, device->mesh(), device->ops(), device->memory());
    run.model().initialize(1, device->ops());
    const FormulaTokens tokens(config.data.seed, config.model.vocab_size);
    (void)run.step().run(ProgramKind::training, training_input(config, tokens, 1, LossScaler(config)));
    host.comm({world_axes}).barrier().wait();
    if (host.rank() == 0) at_end = emulated::num_communicators();
    host.comm({world_axes}).barrier().wait();
  });
  EXPECT_EQ(at_start, at_end);
}

// What the driver is asked for is the plan's bytes, and the operations' workspace beside them.
TEST(GpuMemory, IsThePlansAndTheWorkspace) {
  const RunConfig config = small_config({.shard = 2, .layers = 1});
  std::string reason;
  const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
  const Blueprint blueprint(config);
  std::int64_t expected = 0;
  for (int rank = 0; rank < 2; ++rank) expected += blueprint.rank(rank).arena_bytes() + cuda::Workspace::num_bytes;
  std::int64_t most = 0;
  const auto measured = [&](const RankView& rank) {
    rank.mesh.comm({world_axes}).barrier().wait();
    if (rank.mesh.rank() == 0) most = emulated::num_allocated_bytes();
    rank.mesh.comm({world_axes}).barrier().wait();
  };
  (void)run_training(config, {.at_end = measured, .backend = backend.get()});
  EXPECT_EQ(most, expected);
}

// Memory and traffic are as planned where attention's gradients get scratch, and algorithms of products are timed.
TEST(OutsideDeterministicMode, ARunTakesWhatItsPlanSays) {
  RunConfig config = small_config({.layers = 1});
  config.training.dtype = DType::bfloat16;
  config.training.device = DeviceChoice::cuda;
  config.training.deterministic = false;
  std::string reason;
  const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
  ASSERT_NE(backend, nullptr) << reason;
  const ProgramRuns runs = {.training = config.training.steps, .evaluation = 1};
  (void)run_training(
      config, {.at_end = [&](const RankView& rank) { expect_locks_hold(rank, runs); }, .backend = backend.get()});
}

}  // namespace
}  // namespace echelon::testing
