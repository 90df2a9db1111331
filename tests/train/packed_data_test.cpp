// Runs over packed data: their sequences, losses and checkpoints.
#include "train/evaluate.h"
#include "train/train.h"

#include "base/error.h"
#include "blueprint/small_config.h"
#include "checkpoint/scratch_folder.h"
#include "comm/thread/thread_world.h"
#include "data/dataset_batches.h"
#include "data/packing/packing_file.h"
#include "engine/rank_run.h"
#include "ops/cpu/cpu_ops.h"
#include "tensor/tokens.h"
#include "train/report_log.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

namespace echelon {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class PackedData : public ::testing::Test {
 protected:
  PackedData() {
    write("train", 90);
    write("validation", 40);
  }

  /// Documents of 1 to 16 tokens, at most a sequence.
  void write(const char* name, std::int32_t num_documents) const {
    IndexedDatasetWriter writer((scratch_ / name).string(), TokenType::u16);
    for (std::int32_t d = 0; d < num_documents; ++d) {
      std::vector<std::int32_t> tokens;
      for (std::int32_t i = 0; i <= d * 7 % 16; ++i) tokens.push_back((d * d + 3 * i) % 97);
      writer.add_document(tokens);
    }
    writer.publish();
  }

  [[nodiscard]] RunConfig config() const {
    RunConfig config = testing::small_config();
    config.model.initializer_range = 0.2;
    config.data.path = (scratch_ / "train").string();
    config.data.validation_path = (scratch_ / "validation").string();
    config.data.packing = Packing::best_fit;
    config.data.reset_attention_mask = config.data.eod_mask_loss = true;
    config.output.dir = (scratch_ / "out").string();
    config.training.steps = 3;
    config.training.global_batch_size = 4;
    config.training.micro_batch_size = 1;
    config.training.eval_batches = 1000;
    config.training.dtype = DType::float64;
    config.checkpoint.interval = 1;
    return config;
  }

  ScratchFolder scratch_;
};

/// Each document of a dataset as a sequence of its own.
class SingleDocuments final : public BatchSource {
 public:
  explicit SingleDocuments(const IndexedDataset& dataset) : dataset_(dataset) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    const std::int64_t first = dataset_.document_start(sequence), end = dataset_.document_start(sequence + 1);
    std::fill_n(tokens, seq_len, 0);
    std::fill_n(targets, seq_len, ignored_target);
    dataset_.read(first, {tokens, static_cast<std::size_t>(end - first)});
    std::copy_n(tokens + 1, end - first - 1, targets);
  }
  void read_document_starts(std::int64_t, std::int64_t seq_len, std::int32_t* starts) const override {
    std::fill_n(starts, seq_len, 0);
  }

 private:
  const IndexedDataset& dataset_;
};

// Attention sees no other document and RoPE only differences of positions, so the loss does not depend on what a
// document is packed with.
class PackedModels : public PackedData, public ::testing::WithParamInterface<bool> {
 protected:
  /// A mixture's tokens choose by themselves, and its experts are on two ranks.
  [[nodiscard]] RunConfig config() const {
    RunConfig config = PackedData::config();
    if (!GetParam()) return config;
    config.model.family = Family::mixtral;
    config.model.mixture = family_defaults(Family::mixtral).mixture;
    config.model.mixture.num_experts = 4;
    config.model.mixture.moe_intermediate_size = config.model.intermediate_size;
    config.parallelism.data_parallel_shard_degree = config.parallelism.expert_parallel_degree = 2;
    return config;
  }
};

TEST_P(PackedModels, GiveTheLossOfEveryDocumentByItself) {
  const TrainResult result = train(config(), {});
  RunConfig one = config();
  one.training.global_batch_size = 1;
  one.parallelism = {};
  const IndexedDataset dataset(one.data.validation_path);
  const SingleDocuments documents(dataset);
  double sum = 0, count = 0;
  const Blueprint blueprint(one);
  run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
    const auto ops = make_cpu_ops({});
    RankRun run(blueprint, mesh, *ops);
    run.model().load(ModelReader(result.model_folder), *ops);
    for (std::int64_t d = 0; d < dataset.num_documents(); ++d) {
      const StepResult step =
          run.step().run(ProgramKind::evaluation, {.batches = &documents, .first_sequence = d, .adamw = {}});
      sum += step.loss * step.num_targets;
      count += step.num_targets;
    }
  });
  EXPECT_EQ(count, static_cast<double>(dataset.num_tokens() - dataset.num_documents()));
  EXPECT_NEAR(*result.validation_loss, sum / count, 1e-11);
  RunConfig evaluated = config();
  evaluated.checkpoint.initial_load_path = result.model_folder.string();
  EXPECT_EQ(evaluate(evaluated).num_targets, static_cast<std::int64_t>(count));
  EXPECT_EQ(evaluate(evaluated).num_targets_of_text, static_cast<std::int64_t>(count));
}

INSTANTIATE_TEST_SUITE_P(DenseAndMixture, PackedModels, ::testing::Bool());

TEST_F(PackedData, IsTheSameForEveryLayoutAndReadFromItsFile) {
  testing::ReportLog first, second;
  const double loss = train(config(), {.observer = &first}).last_step.loss;
  const std::string path = packing_path(config().data.path, 16, 0);
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_THAT(first.lines, Contains(HasSubstr("packed " + path + ": ")));
  RunConfig layout = config();
  layout.output.dir = (scratch_ / "layout").string();
  layout.parallelism.data_parallel_shard_degree = layout.parallelism.tensor_parallel_degree = 2;
  layout.parallelism.pipeline_parallel_degree = 2;
  EXPECT_NEAR(train(layout, {.observer = &second}).last_step.loss, loss, 1e-11);
  EXPECT_THAT(second.lines, Contains(HasSubstr("read " + path + ": ")));

  RunConfig stream = config();
  stream.data.packing = Packing::stream;
  stream.output.dir = (scratch_ / "stream").string();
  EXPECT_GT(std::abs(train(stream, {}).last_step.loss - loss), 1e-4) << "other sequences";
}

TEST_F(PackedData, HasSomethingToPredict) {
  const auto write_lengths = [&](const char* name, const std::vector<std::size_t>& lengths) {
    IndexedDatasetWriter writer((scratch_ / name).string(), TokenType::u16);
    for (const std::size_t length : lengths) writer.add_document(std::vector<std::int32_t>(length, 7));
    writer.publish();
  };
  for (const Packing packing : {Packing::best_fit, Packing::stream}) {
    RunConfig config = this->config();
    config.data.packing = packing;
    config.training.steps = 1;
    const std::string named = "data.path = '" + config.data.path + "' ";
    const auto refusal = [&] { return error_of([&] { (void)train(config, {}); }); };
    write_lengths("train", {0, 0, 0});
    EXPECT_THAT(refusal(), HasSubstr(named + "holds 0 tokens"));
    write_lengths("train", std::vector<std::size_t>(50, 1));
    EXPECT_THAT(refusal(), HasSubstr(named + "has no token to predict: no document has two tokens"));
    EXPECT_FALSE(std::filesystem::exists(config.output.dir));
    EXPECT_FALSE(std::filesystem::exists(packing_path(config.data.path, 16, 0)));
    write_lengths("train", {1, 2, 1, 1});
    config.checkpoint.initial_load_path = train(config, {}).model_folder.string();

    const auto evaluated = [&] { return error_of([&] { (void)evaluate(config, 1); }); };
    std::vector<std::size_t> lengths(100, 1);
    write_lengths("validation", lengths);
    EXPECT_THAT(evaluated(), HasSubstr("validation' has no token to predict: no document has two tokens"));
    lengths.back() = 2;
    config.data.packing = Packing::stream;
    write_lengths("validation", lengths);
    EXPECT_THAT(evaluated(), HasSubstr("training.eval_batches = 1 of data.validation_path = '"));
    std::filesystem::remove_all(config.output.dir);
    std::filesystem::remove(packing_path(config.data.path, 16, 0));
    write("validation", 40);
  }
}

TEST_F(PackedData, IsWhatARunResumesWith) {
  RunConfig config = this->config();
  config.training.steps = 6;
  config.output.dir = (scratch_ / "whole").string();
  config.lr_scheduler.decay = LrDecay::none;
  const double loss = train(config, {}).last_step.loss;
  config.output.dir = (scratch_ / "out").string();
  config.training.steps = 3;
  (void)train(config, {});
  config.training.steps = 6;
  EXPECT_EQ(train(config, {}).last_step.loss, loss);

  RunConfig layout = config;
  layout.output.dir = (scratch_ / "other").string();
  layout.training.steps = 3;
  (void)train(layout, {});
  layout.training.steps = 6;
  layout.parallelism.data_parallel_shard_degree = layout.parallelism.pipeline_parallel_degree = 2;
  EXPECT_NEAR(train(layout, {}).last_step.loss, loss, 1e-11) << "on other ranks";

  config.training.steps = 9;
  const auto refusal = [&]() -> std::string {
    try {
      (void)train(config, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  config.checkpoint.load = "latest";
  const std::string advice = "--checkpoint.exclude_from_loading=dataloader to start with the first sequence)";
  config.data.packing = Packing::stream;
  EXPECT_THAT(refusal(),
              HasSubstr("other data: data.packing: was \"best_fit\", is \"stream\" (use that, or " + advice));
  config.data.packing = Packing::best_fit;
  config.data.seed = 5;
  EXPECT_THAT(refusal(), HasSubstr("other data: data.seed: was 0, is 5 (use that, or " + advice));
  config.checkpoint.load = "auto";
  EXPECT_THAT(refusal(), HasSubstr("is 5 (use that, or --checkpoint.load=latest " + advice));
  EXPECT_FALSE(std::filesystem::exists(packing_path(config.data.path, 16, 5))) << "of a refused run";
  config.data.seed = 0;
  config.training.seq_len = 8;
  EXPECT_THAT(refusal(), HasSubstr("other data: training.seq_len: was 16, is 8 (use"));
  config.checkpoint.load = "latest";
  config.checkpoint.exclude_from_loading.dataloader = true;
  RunConfig again = config;
  again.output.dir = (scratch_ / "whole").string();
  EXPECT_EQ(train(again, {}).last_step.step, 9) << "as advised";
  config.training.seq_len = 16;
  config.checkpoint = this->config().checkpoint;
  write("other", 80);
  config.data.path = (scratch_ / "other").string();
  EXPECT_THAT(refusal(), HasSubstr("was made with other data than data.path = '" + config.data.path + "': it was "));
  config.data.path = this->config().data.path;
  config.data.eod_mask_loss = false;
  EXPECT_THAT(refusal(), HasSubstr("data.eod_mask_loss: was true, is false"));
}

}  // namespace
}  // namespace echelon
