// The tokens of the next step are read while the device computes, and are those that it would read itself.
#include "comm/thread/thread_world.h"
#include "cuda/cuda_backend.h"
#include "cuda/emulated/runtime.h"
#include "data/masked_batches.h"
#include "engine/layout_run.h"
#include "engine/run_device.h"
#include "parity/layout.h"

#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

/// Notes which sequences are read, and whether the device has work meanwhile.
class Watched final : public BatchSource {
 public:
  explicit Watched(const BatchSource& source) : source_(source) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    source_.read(sequence, seq_len, tokens, targets);
    read_.push_back({sequence, emulated::num_waiting() > 0});
  }
  struct Read {
    std::int64_t sequence = 0;
    bool is_device_busy = false;
  };
  [[nodiscard]] const std::vector<Read>& reads() const { return read_; }

 private:
  const BatchSource& source_;
  mutable std::vector<Read> read_;
};

TEST(NextBatch, IsReadWhileTheDeviceWorks) {
  RunConfig config = config_of({.microbatches = 1, .layers = 1});
  config.training.steps = 3;
  config.training.seq_len = 8;
  config.training.micro_batch_size = config.training.global_batch_size = 1;
  config.training.device = DeviceChoice::cuda;
  const Blueprint blueprint(config);
  std::string reason;
  const std::unique_ptr<Backend> backend = cuda::make_cuda_backend(reason);
  const FormulaTokens tokens(config.data.seed, config.model.vocab_size);
  const auto losses_of = [&](bool has_next, const Watched& batches) {
    std::vector<double> losses;
    run_thread_ranks(blueprint.mesh(), {.timeout_seconds = 60}, [&](Mesh& host) {
      const std::unique_ptr<RankDevice> device = open_device(*backend, blueprint, host, 1);
      RankRun run(blueprint, device->mesh(), device->ops(), device->memory());
      run.model().initialize(1, device->ops());
      device->ops().finish();
      const LossScaler scaler(config);
      for (std::int64_t step = 1; step <= 3; ++step) {
        StepInput input = training_input(config, batches, step, scaler);
        input.has_next = has_next && step < 3;
        losses.push_back(run.step().run(ProgramKind::training, input).loss);
      }
    });
    return losses;
  };
  const Watched ahead(tokens), in_time(tokens);
  EXPECT_EQ(losses_of(true, ahead), losses_of(false, in_time));
  ASSERT_EQ(ahead.reads().size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ahead.reads()[i].sequence, static_cast<std::int64_t>(i));
    EXPECT_EQ(ahead.reads()[i].is_device_busy, i > 0);
  }
}

}  // namespace
}  // namespace echelon::testing
