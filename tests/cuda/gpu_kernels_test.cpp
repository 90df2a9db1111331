// What the emulated device receives in a step is what cuda/gpu_kernels.h predicts from the operations.
#include "cuda/gpu_kernels.h"

#include "comm/thread/thread_world.h"
#include "cuda/cuda_backend.h"
#include "cuda/emulated/runtime.h"
#include "engine/layout_run.h"
#include "engine/run_device.h"
#include "parity/layout.h"
#include "parity/training_run.h"

#include <gtest/gtest.h>

#include <memory>
#include <ostream>

namespace echelon::testing {
namespace {

struct StepLaunches {
  std::int64_t predicted = 0, apart = 0, counted = 0;  // apart: predicted without fusing or joining
};

/// Counts what passes: copies between host and device as one each, as their tensors are small.
class CountingOps final : public Ops {
 public:
  explicit CountingOps(Ops& ops) : ops_(ops) {}
  void perform(const Operation& operation) override {
    count_.add(operation);
    num_apart_ += cuda::num_gpu_kernels(operation);
    ops_.perform(operation);
  }
  void upload(Tensor out, const void* host) override {
    transfer(out);
    ops_.upload(out, host);
  }
  void download(void* host, Tensor x) override {
    transfer(x);
    ops_.download(host, x);
  }
  void publish() override {
    count_.flush();
    ops_.publish();
  }
  void finish() override {
    count_.flush();
    ops_.finish();
  }
  [[nodiscard]] StepLaunches so_far() const {
    return {count_.total() + num_transfers_, num_apart_ + num_transfers_, emulated::activity().num_enqueued};
  }

 private:
  void transfer(const Tensor& x) {
    count_.flush();
    if (x.num_bytes() > 0) ++num_transfers_;
  }
  Ops& ops_;
  cuda::GpuKernelCount count_;
  std::int64_t num_transfers_ = 0, num_apart_ = 0;
};

/// Of the first step of one rank.
StepLaunches launches_of_step(const RunConfig& config) {
  std::string reason;
  emulated::set_num_devices(1);
  const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
  const Blueprint blueprint(config);
  const FormulaBatches batches(config, Targets::unequal);
  StepLaunches launches;
  run_thread_ranks(blueprint.mesh(), {.timeout_seconds = 60}, [&](Mesh& host) {
    const std::unique_ptr<RankDevice> device = open_device(*backend, blueprint, host, 1);
    CountingOps ops(device->ops());
    RankRun run(blueprint, device->mesh(), ops, device->memory(), nullptr);
    run.model().initialize(config.training.seed, device->ops());
    LossScaler scaler(config);
    ops.finish();
    const StepLaunches before = ops.so_far();  // RoPE's tables have been uploaded
    (void)run.step().run(ProgramKind::training, training_input(config, batches, 1, scaler));
    ops.finish();
    const StepLaunches after = ops.so_far();
    launches = {after.predicted - before.predicted, after.apart - before.apart, after.counted - before.counted};
  });
  return launches;
}

struct StepCase {
  Family family;
  DType dtype;
  double max_norm;
};
void PrintTo(const StepCase& c, std::ostream* out) {
  *out << (c.family == Family::gpt2 ? "gpt2 " : "llama ") << name_of(c.dtype) << " max_norm " << c.max_norm;
}

class GpuKernels : public ::testing::TestWithParam<StepCase> {};

TEST_P(GpuKernels, OfAStepAreThosePredicted) {
  RunConfig config = config_of({.family = GetParam().family, .layers = 1});
  config.training.dtype = GetParam().dtype;
  config.training.max_norm = GetParam().max_norm;
  const StepLaunches launches = launches_of_step(config);
  EXPECT_EQ(launches.counted, launches.predicted);
  EXPECT_LT(launches.predicted, launches.apart);  // the rules of fusing and joining matter
}

INSTANTIATE_TEST_SUITE_P(Steps, GpuKernels,
                         ::testing::Values(StepCase{Family::gpt2, DType::float32, 1.0},
                                           StepCase{Family::gpt2, DType::bfloat16, 0.0},
                                           StepCase{Family::gpt2, DType::float64, 1.0},
                                           StepCase{Family::llama, DType::float32, 1.0},
                                           StepCase{Family::llama, DType::bfloat16, 1.0}));

}  // namespace
}  // namespace echelon::testing
