// What a step makes of extreme input, and what its ranks tell each other.
#include "engine/step.h"

#include "base/error.h"
#include "blueprint/small_config.h"
#include "comm/thread/thread_world.h"
#include "engine/rank_run.h"
#include "engine/tensor_collection.h"
#include "ops/cpu/cpu_ops.h"
#include "tensor/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace echelon {
namespace {

/// Batch 0 is text, in batch 1 nothing is predicted.
class TextThenNothing : public BatchSource {
 public:
  explicit TextThenNothing(std::int64_t batch_size) : batch_size_(batch_size) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    for (std::int64_t i = 0; i < seq_len; ++i) {
      tokens[i] = static_cast<std::int32_t>((sequence + i * i) % 32);
      targets[i] = sequence < batch_size_ ? static_cast<std::int32_t>((sequence + i) % 32) : ignored_target;
    }
  }

 private:
  std::int64_t batch_size_;
};

RunConfig layout_of_eight() {
  RunConfig config = testing::small_config();
  config.parallelism.data_parallel_shard_degree = 2;
  config.parallelism.tensor_parallel_degree = 2;
  config.parallelism.pipeline_parallel_degree = 2;
  return config;
}

TEST(Step, WithoutAnyTargetHasNoGradient) {
  const RunConfig config = layout_of_eight();
  const Blueprint blueprint(config);
  const TextThenNothing batches(config.training.global_batch_size);
  TensorCollection values;
  run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
    const auto ops = make_cpu_ops({});
    RankRun run(blueprint, mesh, *ops);
    run.model().initialize(1, *ops);
    for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation}) {
      const StepResult text = run.step().run(
          kind, {.batches = &batches, .first_sequence = 0, .adamw = {.lr = 1e-3, .step = 1}, .max_norm = 1.0});
      EXPECT_GT(text.loss, 0);
      const StepResult nothing = run.step().run(kind, {.batches = &batches,
                                                       .first_sequence = config.training.global_batch_size,
                                                       .adamw = {.lr = 1e-3, .step = 2},
                                                       .max_norm = 1.0});
      EXPECT_EQ(nothing.num_targets, 0);
      EXPECT_EQ(nothing.loss, 0);
      EXPECT_EQ(nothing.grad_norm, 0);
    }
    values.add_values(run.model(), *ops);
  });
  for (const auto& [name, numbers] : values.tensors())
    EXPECT_TRUE(std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); })) << name;
}

// Weights that products form are not zeroed, but overwritten by the first microbatch.
TEST(Step, NothingIsLeftOfTheGradientsOfTheStepBefore) {
  for (RunConfig config : {testing::small_config(), layout_of_eight()}) {
    for (const bool is_tied : {false, true}) {
      config.model.tie_word_embeddings = is_tied;
      const Blueprint blueprint(config);
      const TextThenNothing batches(config.training.global_batch_size);
      run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
        const auto ops = make_cpu_ops({});
        RankRun run(blueprint, mesh, *ops);
        run.model().initialize(1, *ops);
        const StepInput without_update = {.batches = &batches, .adamw = {.lr = 0}};
        const double norm = run.step().run(ProgramKind::training, without_update).grad_norm;
        EXPECT_GT(norm, 0);
        for (const ShardedUnit* unit : run.model().part().units())
          for (std::size_t b = 0; b < unit->buckets().size(); ++b) ops->fill(unit->memory(b).grad, std::nan(""));
        EXPECT_EQ(run.step().run(ProgramKind::training, without_update).grad_norm, norm);
      });
    }
  }
}

TEST(Step, TheHighestRequestOfARankIsHeardByAll) {
  const RunConfig config = layout_of_eight();
  const Blueprint blueprint(config);
  const TextThenNothing batches(config.training.global_batch_size);
  std::atomic<int> num_heard = 0;
  run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
    const auto ops = make_cpu_ops({});
    RankRun run(blueprint, mesh, *ops);
    run.model().initialize(1, *ops);
    const auto heard = [&](ProgramKind kind, RunRequest of_rank_5, RunRequest of_others) {
      const RunRequest asked = mesh.rank() == 5 ? of_rank_5 : of_others;
      return run.step().run(kind, {.batches = &batches, .adamw = {.lr = 1e-3}, .request = asked}).request;
    };
    using enum RunRequest;
    for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation}) {
      if (heard(kind, none, none) == none) ++num_heard;
      if (heard(kind, save, none) == save) ++num_heard;
      if (heard(kind, save, save) == save) ++num_heard;
      if (heard(kind, restart, save) == restart) ++num_heard;
      if (heard(kind, interrupt, restart) == interrupt) ++num_heard;
    }
  });
  EXPECT_EQ(num_heard, 2 * 5 * 8);
}

TEST(Step, WithoutANormToClipToIsAStepThatNothingClips) {
  const RunConfig config = layout_of_eight();
  const Blueprint blueprint(config);
  const TextThenNothing batches(config.training.global_batch_size);
  const auto weights_after = [&](double max_norm) {
    TensorCollection values;
    run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
      const auto ops = make_cpu_ops({});
      RankRun run(blueprint, mesh, *ops);
      run.model().initialize(1, *ops);
      (void)run.step().run(ProgramKind::training, {.batches = &batches, .adamw = {.lr = 1e-3}, .max_norm = max_norm});
      values.add_values(run.model(), *ops);
    });
    return values.tensors();
  };
  const auto unclipped = weights_after(0);
  EXPECT_EQ(unclipped, weights_after(1e9));
  EXPECT_NE(unclipped, weights_after(1e-9)) << "AdamW's eps is felt where gradients are tiny";
}

/// Counts how often what is under way may advance.
class CountingMesh : public Mesh {
 public:
  explicit CountingMesh(Mesh& mesh) : Mesh(mesh.shape(), mesh.rank()), mesh_(mesh) {}
  Comm& comm(const Group& group) override { return mesh_.comm(group); }
  void poll() override {
    ++num_polls_;
    mesh_.poll();
  }
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return mesh_.sent_bytes(); }
  void abort(const std::string& reason) override { mesh_.abort(reason); }

  [[nodiscard]] std::size_t num_polls() const { return num_polls_; }

 private:
  Mesh& mesh_;
  std::size_t num_polls_ = 0;
};

// Gradients are reduced while the backward pass goes on only if somebody advances them, and there is no thread that
// would.
TEST(Step, AdvancesWhatIsUnderWayAfterEveryAction) {
  const RunConfig config = layout_of_eight();
  const Blueprint blueprint(config);
  const TextThenNothing batches(config.training.global_batch_size);
  run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& plain_mesh) {
    CountingMesh mesh(plain_mesh);
    const auto ops = make_cpu_ops({});
    RankRun run(blueprint, mesh, *ops);
    run.model().initialize(1, *ops);
    (void)run.step().run(ProgramKind::training, {.batches = &batches, .adamw = {.lr = 1e-3}});
    EXPECT_EQ(mesh.num_polls(), run.blueprint().program(ProgramKind::training).size());
  });
}

/// Throws what is no Error of ours.
class OutOfMemory : public BatchSource {
 public:
  void read(std::int64_t, std::int64_t, std::int32_t*, std::int32_t*) const override { throw std::bad_alloc(); }
};

TEST(Step, NamesTheActionOfAnyException) {
  const Blueprint blueprint(testing::small_config());
  try {
    run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
      const auto ops = make_cpu_ops({});
      RankRun run(blueprint, mesh, *ops);
      const OutOfMemory batches;
      (void)run.step().run(ProgramKind::training, {.batches = &batches, .adamw = {}});
    });
    FAIL() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::failure);
    EXPECT_THAT(error.what(), ::testing::StartsWith("rank 0: load_batch: "));
  }
}

}  // namespace
}  // namespace echelon
