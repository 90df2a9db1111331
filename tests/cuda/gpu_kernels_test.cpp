// What the emulated device receives in a step is what ops/gpu/gpu_kernels.h predicts from the operations.
#include "cuda/cuda_backend.h"

#include "comm/thread/thread_world.h"
#include "cuda/emulated/runtime.h"
#include "engine/layout_run.h"
#include "engine/run_device.h"
#include "ops/gpu/gpu_kernels.h"
#include "parity/layout.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace echelon::testing {
namespace {

struct StepLaunches {
  std::int64_t predicted = 0, apart = 0, counted = 0;  // apart: predicted without fusing or joining
  std::string first_difference;                        // where they differ first, and by how much
};

// Sizes by hand: 16 x 24 times 24 x 32 in bfloat16, with a bias and a residual.
TEST(GpuKernelCount, FusingSavesBytes) {
  std::vector<std::byte> memory(1 << 16);
  std::byte* end = memory.data();
  const auto tensor = [&](const Sizes& sizes) {
    const Tensor x(end, DType::bfloat16, sizes);
    end += x.num_bytes();
    return x;
  };
  const Tensor x = tensor({16, 24}), w = tensor({32, 24}), y = tensor({16, 32}), b = tensor({32}), h = tensor({16, 32});
  cuda::GpuKernelCount count;
  const std::int64_t product = 2 * (16 * 24 + 32 * 24 + 16 * 32);
  count.add(MatmulArgs{.a = x, .b = w, .c = y, .transpose_b = true});
  count.add(AddBiasArgs{y, b});
  count.add(AddArgs{y, y, h});
  EXPECT_EQ(count.total().kernels, 0) << "it waits for what follows";
  count.flush();
  EXPECT_EQ(count.total().kernels, 1);
  EXPECT_EQ(count.total().bytes, product + 2 * (32 + 16 * 32));
  count.add(FillArgs{y, 1.0});
  count.add(FillArgs{h, 1.0});
  count.flush();
  EXPECT_EQ(count.of(OpKind::fill).kernels, 1);
  EXPECT_EQ(count.of(OpKind::fill).bytes, 2 * 2 * 16 * 32);
}

/// How operations follow each other.
enum class Delay : std::uint8_t { allowed, never };

/// Compares after every call what was enqueued with what is predicted, on the rank's own thread. Copies between host
/// and device are one each, as their tensors are small.
class CountingOps final : public Ops {
 public:
  CountingOps(Ops& ops, Delay delay) : ops_(ops), delay_(delay) {}
  void perform(const Operation& operation) override {
    counted(name_of(operation.kind()), [&] {
      launches_.apart += cuda::num_gpu_kernels(operation);
      count_.add(operation);
      ops_.perform(operation);
      if (delay_ == Delay::allowed) return;
      count_.flush();
      ops_.publish();
    });
  }
  void upload(Tensor out, const void* host) override {
    transfer("upload", out, [&] { ops_.upload(out, host); });
  }
  void download(void* host, Tensor x) override {
    transfer("download", x, [&] { ops_.download(host, x); });
  }
  void publish() override {
    counted("publish", [&] {
      count_.flush();
      ops_.publish();
    });
  }
  void finish() override {
    counted("finish", [&] {
      count_.flush();
      ops_.finish();
    });
  }
  [[nodiscard]] const StepLaunches& so_far() const { return launches_; }

 private:
  template <class Call>
  void counted(std::string_view name, Call&& call) {
    const long before = emulated::num_enqueued_by_this_thread();
    call();
    launches_.counted += emulated::num_enqueued_by_this_thread() - before;
    launches_.predicted = count_.total().kernels + num_transfers_;
    if (launches_.first_difference.empty() && launches_.counted != launches_.predicted)
      launches_.first_difference =
          fmt::format("{}: {} enqueued, {} predicted", name, launches_.counted, launches_.predicted);
  }
  template <class Call>
  void transfer(std::string_view name, const Tensor& x, Call&& call) {
    counted(name, [&] {
      count_.flush();
      num_transfers_ += x.num_bytes() > 0 ? 1 : 0;
      launches_.apart += x.num_bytes() > 0 ? 1 : 0;
      call();
    });
  }
  Ops& ops_;
  Delay delay_;
  cuda::GpuKernelCount count_;
  std::int64_t num_transfers_ = 0;
  StepLaunches launches_;
};

/// Nothing is held back where a recording starts or ends, which the device would enqueue without being counted.
class PublishingRecorder final : public WorkRecorder {
 public:
  PublishingRecorder(WorkRecorder& recorder, Ops& ops) : recorder_(recorder), ops_(ops) {}
  void begin() override {
    ops_.publish();
    recorder_.begin();
  }
  void end() override {
    ops_.publish();
    recorder_.end();
  }
  void cancel() noexcept override { recorder_.cancel(); }
  void replay() override { recorder_.replay(); }

 private:
  WorkRecorder& recorder_;
  Ops& ops_;
};

/// Of the first step of each rank; with CUDA graphs of two, of which the second one is captured.
std::vector<StepLaunches> launches_of_step(const RunConfig& config, Delay delay) {
  std::string reason;
  const int num_ranks = config.mesh_shape().num_ranks();
  emulated::set_num_devices(num_ranks);
  const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
  const Blueprint blueprint(config);
  const FormulaBatches batches(config, Targets::unequal);
  std::vector<StepLaunches> launches(static_cast<std::size_t>(num_ranks));
  run_thread_ranks(blueprint.mesh(), {.timeout_seconds = 60}, [&](Mesh& host) {
    const std::unique_ptr<RankDevice> device = open_device(*backend, blueprint, host, 1);
    CountingOps ops(device->ops(), delay);
    std::optional<PublishingRecorder> recorder;
    if (config.training.cuda_graphs) recorder.emplace(*recorder_of(*device, config), ops);
    RankRun run(blueprint, device->mesh(), ops, device->memory(), recorder ? &*recorder : nullptr);
    run.model().initialize(config.training.seed, device->ops());
    LossScaler scaler(config);
    ops.finish();
    for (const std::int64_t step : {1, 2}) {
      if (step > 1 && !config.training.cuda_graphs) break;
      (void)run.step().run(ProgramKind::training, training_input(config, batches, step, scaler));
      ops.finish();
    }
    launches[static_cast<std::size_t>(host.rank())] = ops.so_far();
  });
  emulated::set_num_devices(1);
  return launches;
}

struct StepCase {
  std::string name;
  Layout layout = {.layers = 1};
  DType dtype = DType::float32;
  double max_norm = 1.0;
  BlockOperations recompute = {};
  bool is_float8 = false;
};
void PrintTo(const StepCase& c, std::ostream* out) { *out << c.name; }

RunConfig config_of(const StepCase& c) {
  RunConfig config = config_of(c.layout);
  config.training.dtype = c.dtype;
  config.training.max_norm = c.max_norm;
  config.training.recompute = c.recompute;
  return c.is_float8 ? in_float8(config) : config;
}

class GpuKernels : public ::testing::TestWithParam<StepCase> {};

TEST_P(GpuKernels, OfAStepAreThosePredicted) {
  for (const StepLaunches& launches : launches_of_step(config_of(GetParam()), Delay::allowed)) {
    EXPECT_EQ(launches.first_difference, "");
    EXPECT_EQ(launches.counted, launches.predicted);
    EXPECT_LT(launches.predicted, launches.apart);  // the rules of fusing and joining matter
  }
}

class GpuKernelsInGraphs : public GpuKernels {};

// What is captured is counted where it is enqueued. Its replay is one call, which no operation makes.
TEST_P(GpuKernelsInGraphs, AreThosePredicted) {
  RunConfig config = config_of(GetParam());
  const std::vector<StepLaunches> of_one_step = launches_of_step(config, Delay::allowed);
  config.training.cuda_graphs = true;
  const std::int64_t captures_before = emulated::activity().num_captures;
  const std::vector<StepLaunches> of_two_steps = launches_of_step(config, Delay::allowed);
  EXPECT_EQ(emulated::activity().num_captures - captures_before, std::ssize(of_two_steps));
  for (std::size_t rank = 0; rank < of_two_steps.size(); ++rank) {
    EXPECT_EQ(of_two_steps[rank].first_difference, "");
    EXPECT_EQ(of_two_steps[rank].counted, of_two_steps[rank].predicted);
    EXPECT_GT(of_two_steps[rank].counted, 3 * of_one_step[rank].counted / 2);  // the captured ones are among them
  }
}

class GpuKernelsApart : public GpuKernels {};

// Kind by kind, since nothing waits for what follows.
TEST_P(GpuKernelsApart, OfEachOperationAreThosePredicted) {
  for (const StepLaunches& launches : launches_of_step(config_of(GetParam()), Delay::never)) {
    EXPECT_EQ(launches.first_difference, "");
    EXPECT_EQ(launches.counted, launches.apart);
  }
}

const StepCase of_one_rank[] = {
    {.name = "gpt2", .layout = {.family = Family::gpt2, .layers = 1}},
    {.name = "gpt2_bfloat16", .layout = {.family = Family::gpt2, .layers = 1}, .dtype = DType::bfloat16, .max_norm = 0},
    {.name = "gpt2_float64", .layout = {.family = Family::gpt2, .layers = 1}, .dtype = DType::float64},
    {.name = "llama"},
    {.name = "llama_bfloat16", .dtype = DType::bfloat16},
    {.name = "recompute", .recompute = whole_block},
    {.name = "float8", .dtype = DType::bfloat16, .is_float8 = true}};
const StepCase of_several_ranks[] = {
    {.name = "tp", .layout = {.tp = 2, .layers = 1}},
    {.name = "tp_sequence", .layout = {.tp = 2, .sequence_parallel = true, .family = Family::gpt2, .layers = 1}},
    {.name = "pp", .layout = {.pp = 2, .layers = 2}},
    {.name = "pp_zb_h1", .layout = {.pp = 2, .schedule = PipelineSchedule::zb_h1, .layers = 2}},
    {.name = "zero1", .layout = {.shard = 2, .zero = 1, .layers = 1}},
    {.name = "zero2", .layout = {.shard = 2, .zero = 2, .layers = 1}, .dtype = DType::bfloat16},
    {.name = "zero3", .layout = {.shard = 2, .zero = 3, .layers = 1}},
    {.name = "zero3_tp", .layout = {.shard = 2, .tp = 2, .zero = 3, .layers = 1}},
    {.name = "float8_tp", .layout = {.tp = 2, .layers = 1}, .is_float8 = true}};

INSTANTIATE_TEST_SUITE_P(OneRank, GpuKernels, ::testing::ValuesIn(of_one_rank));
INSTANTIATE_TEST_SUITE_P(SeveralRanks, GpuKernels, ::testing::ValuesIn(of_several_ranks));
INSTANTIATE_TEST_SUITE_P(OneRank, GpuKernelsInGraphs, ::testing::ValuesIn(of_one_rank));
INSTANTIATE_TEST_SUITE_P(OneRank, GpuKernelsApart, ::testing::ValuesIn(of_one_rank));

}  // namespace
}  // namespace echelon::testing
