// Steps whose work is recorded and replayed, by a recorder for one processor: it keeps operations and runs them again.
#include "base/error.h"
#include "blueprint/small_config.h"
#include "comm/thread/thread_world.h"
#include "engine/rank_run.h"
#include "engine/tensor_collection.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/stored_operation.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

class RecordedOps final : public Ops, public WorkRecorder {
 public:
  void perform(const Operation& operation) override {
    if (!is_recording_) return inner_->perform(operation);
    if (operation.kind() == fails_at) throw Failure("this cannot be recorded");
    recorded_.push_back(stored(operation));
  }
  void upload(Tensor out, const void* host) override {
    EXPECT_FALSE(is_recording_);
    inner_->upload(out, host);
  }
  void download(void* host, Tensor x) override {
    EXPECT_FALSE(is_recording_);
    inner_->download(host, x);
  }
  void publish() override {}

  void begin() override {
    ++num_recordings;
    is_recording_ = true;
    recorded_.clear();
  }
  void end() override { is_recording_ = false; }
  void cancel() noexcept override { is_recording_ = false; }
  void replay() override {
    ++num_replays;
    for (const StoredOperation& operation : recorded_) echelon::perform(*inner_, operation);
  }

  int num_recordings = 0, num_replays = 0;
  OpKind fails_at = OpKind::download;

 private:
  std::unique_ptr<Ops> inner_ = make_cpu_ops({});
  std::vector<StoredOperation> recorded_;
  bool is_recording_ = false;
};

class Squares final : public BatchSource {
 public:
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    for (std::int64_t i = 0; i < seq_len; ++i)
      tokens[i] = targets[i] = static_cast<std::int32_t>((sequence * 5 + i * i) % 32);
  }
};

struct Trained {
  std::vector<double> losses, norms;
  TensorCollection weights;
};

constexpr std::int64_t num_replayed_steps = 8;

/// The last three steps are clipped.
std::unique_ptr<Trained> trained(RecordedOps& ops, WorkRecorder* recorder, std::int64_t observed_step = 0) {
  const Blueprint blueprint(testing::small_config());
  const Squares batches;
  auto outcome = std::make_unique<Trained>();
  run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
    RankRun run(blueprint, mesh, ops, host_memory(), recorder);
    run.model().initialize(1, ops);
    for (std::int64_t step = 1; step <= num_replayed_steps; ++step) {
      const AdamWOptions adamw = {.lr = 1e-3 * static_cast<double>(step), .step = step};
      run.step().observe_gradients(step == observed_step ? [](RankModel&, double) {} : GradientObserver());
      const StepResult result =
          run.step().run(ProgramKind::training, {.batches = &batches,
                                                 .first_sequence = (step - 1) * 16,
                                                 .adamw = adamw,
                                                 .max_norm = step > num_replayed_steps - 3 ? 0.01 : 0.0});
      outcome->losses.push_back(result.loss);
      outcome->norms.push_back(result.grad_norm);
      if (step == 4)
        (void)run.step().run(ProgramKind::evaluation, {.batches = &batches, .first_sequence = 9 * 16, .adamw = {}});
    }
    outcome->weights.add_values(run.model(), ops);
  });
  return outcome;
}

// Learning rate, step and tokens are others in every step and are no part of the work; the norm to clip to is one.
TEST(StepReplay, IsTheStepItself) {
  RecordedOps plain, recorded;
  const auto expected = trained(plain, nullptr), actual = trained(recorded, &recorded);
  EXPECT_EQ(actual->losses, expected->losses);
  EXPECT_EQ(actual->norms, expected->norms);
  EXPECT_EQ(actual->weights.tensors(), expected->weights.tensors());
  EXPECT_EQ(recorded.num_recordings, 2);
  EXPECT_EQ(recorded.num_replays, 4 + 2);  // the first step of five and the first of three are enqueued as they come
  EXPECT_EQ(plain.num_replays, 0);
}

TEST(StepReplay, IsNotWhatAnObserverSees) {
  RecordedOps plain, recorded;
  const auto expected = trained(plain, nullptr), actual = trained(recorded, &recorded, 4);
  EXPECT_EQ(actual->losses, expected->losses);
  EXPECT_EQ(recorded.num_replays, 3 + 2);
}

TEST(StepReplay, NamesTheActionThatCannotBeRecorded) {
  RecordedOps ops;
  ops.fails_at = OpKind::adamw;
  try {
    (void)trained(ops, &ops);
    FAIL() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("rank 0: update stage 0 unit 0: this cannot be recorded"))
        << error.what();
  }
}

}  // namespace
}  // namespace echelon
