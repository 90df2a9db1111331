// A rank that fails ends the whole run at once, and says who it was and what it did.
#include "base/error.h"
#include "blueprint/small_config.h"
#include "comm/thread/thread_world.h"
#include "engine/rank_run.h"
#include "ops/cpu/cpu_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

namespace echelon {
namespace {

/// Data of which one sequence cannot be read.
class BrokenBatches : public BatchSource {
 public:
  explicit BrokenBatches(std::int64_t broken_sequence) : broken_sequence_(broken_sequence) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    if (sequence == broken_sequence_) {
      std::call_once(failed_, [this] { failed_at_ = std::chrono::steady_clock::now(); });
      throw Failure("the disk is gone");
    }
    for (std::int64_t i = 0; i < seq_len; ++i) tokens[i] = targets[i] = static_cast<std::int32_t>((sequence + i) % 32);
  }

  [[nodiscard]] std::chrono::steady_clock::time_point failed_at() const { return failed_at_; }

 private:
  std::int64_t broken_sequence_;
  mutable std::once_flag failed_;
  mutable std::chrono::steady_clock::time_point failed_at_;
};

RunConfig config_of_256_ranks() {
  RunConfig config;
  config.model = family_defaults(Family::llama);
  config.model.hidden_size = 16;
  config.model.num_hidden_layers = 8;
  config.model.num_attention_heads = 4;
  config.model.num_key_value_heads = 4;
  config.model.head_dim = 4;
  config.model.intermediate_size = 32;
  config.model.vocab_size = 32;
  config.model.max_position_embeddings = 8;
  config.training.seq_len = 8;
  config.training.global_batch_size = 16;
  config.parallelism.data_parallel_shard_degree = 8;
  config.parallelism.tensor_parallel_degree = 4;
  config.parallelism.pipeline_parallel_degree = 8;
  return config;
}

TEST(FailingRank, EndsAll256AndNamesRankAndAction) {
  const RunConfig config = config_of_256_ranks();
  const Blueprint blueprint(config);
  // The last sequence of the second batch belongs to data rank 7, whose first rank in the mesh is pipeline 0, shard 7,
  // tensor 0.
  const BrokenBatches batches(2 * config.training.global_batch_size - 1);
  try {
    run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
      const auto ops = make_cpu_ops({});
      RankRun run(blueprint, mesh, *ops);
      run.model().initialize(1, *ops);
      for (std::int64_t step = 1; step <= 3; ++step) {
        (void)run.step().run(ProgramKind::training, {.batches = &batches,
                                                     .first_sequence = (step - 1) * config.training.global_batch_size,
                                                     .adamw = {.lr = 1e-3, .step = step}});
      }
    });
    FAIL() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::failure);
    EXPECT_THAT(std::string(error.what()), ::testing::MatchesRegex("rank [0-9]+: load_batch: the disk is gone"))
        << error.what();
  }
  // Within a second, and generously so on a loaded machine: without the abort the others would wait for
  // comm.timeout_seconds.
  EXPECT_LT(std::chrono::steady_clock::now() - batches.failed_at(), std::chrono::seconds(10));
}

/// A device that is lost at its second look-up of tokens.
class LosingOps : public CpuOps {
 public:
  LosingOps() : CpuOps(CpuOptions{}) {}
  void perform(const Operation& operation) override {
    if (operation.kind() == OpKind::embedding && ++num_calls_ == 2) throw Failure("the device is gone");
    CpuOps::perform(operation);
  }

 private:
  int num_calls_ = 0;
};

struct SlowEnd {
  ~SlowEnd() { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }
};

// The gradient that the failing rank was about to receive is given up while it unwinds, and with that its peer ends:
// before the failure itself is told.
TEST(FailingRank, IsNamedThoughItsPeersEndBeforeIt) {
  RunConfig config = testing::small_config();
  config.parallelism.pipeline_parallel_degree = 2;
  config.parallelism.pipeline_parallel_schedule = PipelineSchedule::gpipe;
  config.training.global_batch_size = 2 * config.training.micro_batch_size;
  const Blueprint blueprint(config);
  const BrokenBatches batches(-1);
  try {
    run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
      const std::optional<SlowEnd> slow_end = mesh.rank() == 0 ? std::optional<SlowEnd>(std::in_place) : std::nullopt;
      LosingOps ops;
      RankRun run(blueprint, mesh, ops);
      run.model().initialize(1, ops);
      (void)run.step().run(ProgramKind::training, {.batches = &batches, .adamw = {.lr = 1e-3}});
    });
    FAIL() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "rank 0: forward stage 0 microbatch 1: the device is gone");
  }
}

}  // namespace
}  // namespace echelon
