// A whole run: which data is trained and evaluated on, with which learning rate, what is saved when, and how a run ends
// early.
#include "train/train.h"
#include "train/evaluate.h"

#include "base/error.h"
#include "blueprint/small_config.h"
#include "checkpoint/hf/folder_swap.h"
#include "checkpoint/hf/model_writer.h"
#include "checkpoint/scratch_folder.h"
#include "checkpoint/steps_in.h"
#include "comm/thread/thread_world.h"
#include "data/dataset_batches.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/tokenizer.h"
#include "engine/lr_schedule.h"
#include "engine/rank_run.h"
#include "files/file.h"
#include "ops/cpu/cpu_ops.h"
#include "spec/groups.h"
#include "train/report_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <cmath>
#include <csignal>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <tuple>

namespace echelon {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Neither is a whole number of windows or batches.
constexpr std::int64_t num_training_tokens = 1000, num_validation_tokens = 301;

class Train : public ::testing::Test {
 protected:
  void SetUp() override {
    write("train", num_training_tokens, [](std::int64_t i) { return i * i % 23; });
    write("validation", num_validation_tokens, [](std::int64_t i) { return 40 + i % 5 * (i % 3); });
  }

  static std::int64_t num_windows(const RunConfig& config) {
    return (num_validation_tokens - 1 + config.training.seq_len - 1) / config.training.seq_len;
  }

  RunConfig config() const {
    RunConfig config = testing::small_config();
    // So that the loss differs from that of a uniform model from the start.
    config.model.initializer_range = 0.2;
    config.data.path = (scratch_ / "train").string();
    config.data.validation_path = (scratch_ / "validation").string();
    config.output.dir = (scratch_ / "out").string();
    config.training.steps = 4;
    config.training.global_batch_size = 8;
    config.training.dtype = DType::float64;
    config.lr_scheduler.warmup_steps = 2;
    config.checkpoint.interval = 1;
    return config;
  }

  /// The same on eight ranks.
  RunConfig layout() const {
    RunConfig config = this->config();
    config.parallelism.data_parallel_shard_degree = 2;
    config.parallelism.tensor_parallel_degree = 2;
    config.parallelism.pipeline_parallel_degree = 2;
    return config;
  }

  std::filesystem::path checkpoints() const { return scratch_ / "out" / "checkpoint"; }

  /// The loss over the validation windows one by one, on one rank.
  double validation_loss_of(const std::filesystem::path& model) const {
    RunConfig one = config();
    one.training.global_batch_size = one.training.micro_batch_size = 1;
    const DatasetBatches data(IndexedDataset(one.data.validation_path), {.order = WindowOrder::in_order});
    double sum = 0, count = 0;
    on_one_rank(one, [&](RankRun& run, Ops& ops) {
      run.model().load(ModelReader(model), ops);
      for (std::int64_t window = 0; window < num_windows(one); ++window) {
        const StepResult result =
            run.step().run(ProgramKind::evaluation, {.batches = &data, .first_sequence = window, .adamw = {}});
        sum += result.loss * result.num_targets;
        count += result.num_targets;
      }
    });
    return sum / count;
  }

  template <class Body>
  static void on_one_rank(const RunConfig& config, Body&& body) {
    const Blueprint blueprint(config);
    run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
      const auto ops = make_cpu_ops({});
      RankRun run(blueprint, mesh, *ops);
      body(run, *ops);
    });
  }

  ScratchFolder scratch_;

 private:
  template <class Token>
  void write(const char* name, std::int64_t num_tokens, Token&& token) {
    IndexedDatasetWriter writer((scratch_ / name).string(), TokenType::u16);
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < num_tokens; ++i) tokens.push_back(static_cast<std::int32_t>(token(i)));
    writer.add_document(tokens);
    writer.publish();
  }
};

TEST_F(Train, StepsFollowTheScheduleAndTheData) {
  const RunConfig one = config();
  std::vector<double> losses, rates;
  const DatasetBatches data(IndexedDataset(one.data.path), {.seed = one.data.seed, .order = WindowOrder::shuffled});
  on_one_rank(one, [&](RankRun& run, Ops& ops) {
    run.model().initialize(one.training.seed, ops);
    for (std::int64_t step = 1; step <= one.training.steps; ++step) {
      // Linear warm-up over two steps, then half a cosine down to zero after the last.
      const double lr = one.optimizer.lr * (step <= 2 ? static_cast<double>(step) / 2
                                                      : 0.5 * (1 + std::cos(M_PI * static_cast<double>(step - 3) / 2)));
      rates.push_back(lr);
      const StepInput input = {
          .batches = &data,
          .first_sequence = (step - 1) * one.training.global_batch_size,
          .adamw = {.lr = lr, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = step},
          .max_norm = 1.0};
      losses.push_back(run.step().run(ProgramKind::training, input).loss);
    }
  });
  testing::ReportLog log;
  (void)train(layout(), {.observer = &log});
  const std::vector<StepReport>& reports = log.steps;
  ASSERT_EQ(reports.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(reports[i].step, static_cast<std::int64_t>(i) + 1);
    EXPECT_NEAR(reports[i].loss, losses[i], 1e-11 * losses[i]) << "step " << i + 1;
    EXPECT_NEAR(reports[i].lr, rates[i], 1e-12) << "step " << i + 1;
  }
}

TEST_F(Train, EveryRankTellsTheObserver) {
  struct Counts final : RunObserver {
    void starts(const RankView&) override { ++num_starts; }
    void ended_step(const RankView& rank, std::int64_t step, const StepResult& result) override {
      const std::lock_guard lock(mutex);
      losses[step][rank.mesh.rank()] = result.loss;
    }
    void ends(const RankView&) override { ++num_ends; }
    void described(const std::string&) override { ++num_lines; }

    std::atomic<int> num_starts = 0, num_ends = 0, num_lines = 0;
    std::mutex mutex;
    std::map<std::int64_t, std::map<int, double>> losses;  // by step and rank
  };
  Counts counts;
  const RunConfig config = layout();
  const std::int64_t num_ranks = config.mesh_shape().num_ranks();
  const TrainResult result = train(config, {.observer = &counts});
  EXPECT_EQ(counts.num_starts, num_ranks);
  EXPECT_EQ(counts.num_ends, num_ranks);
  EXPECT_GE(counts.num_lines, 3) << "of the layout, of the memory and of the device";
  ASSERT_EQ(std::ssize(counts.losses), config.training.steps);
  for (const auto& [step, losses] : counts.losses) EXPECT_EQ(std::ssize(losses), num_ranks) << step;
  EXPECT_EQ(counts.losses.rbegin()->second.at(0), result.last_step.loss);
}

TEST_F(Train, EvaluatesEveryValidationTokenOnceAndSavesWhatItEvaluated) {
  RunConfig config = layout();
  config.training.eval_interval = 1;
  config.training.eval_batches = 1000;
  config.checkpoint.keep_latest_k = 2;
  testing::ReportLog log;
  const TrainResult result = train(config, {.observer = &log});
  const std::vector<EvaluationReport>& evaluations = log.evaluations;
  const std::vector<std::filesystem::path>& saved = log.folders;
  ASSERT_EQ(evaluations.size(), 4U);
  EXPECT_THAT(saved,
              ElementsAre(step_folder(checkpoints(), 1), step_folder(checkpoints(), 2), step_folder(checkpoints(), 3),
                          step_folder(checkpoints(), 4), scratch_ / "out" / "model"));
  EXPECT_THAT(steps_in(checkpoints()), ElementsAre(3, 4));
  EXPECT_EQ(result.checkpoint, step_folder(checkpoints(), 4));
  EXPECT_EQ(result.model_folder, saved.back());
  EXPECT_EQ(validation_loss_of(result.model_folder), validation_loss_of(result.checkpoint));
  EXPECT_EQ(result.validation_loss, evaluations.back().loss);
  for (const std::int64_t step : {3, 4}) {
    const EvaluationReport& evaluation = evaluations[static_cast<std::size_t>(step) - 1];
    EXPECT_EQ(evaluation.step, step);
    EXPECT_EQ(evaluation.tokens, num_validation_tokens - 1);
    const double expected = validation_loss_of(step_folder(checkpoints(), step));
    EXPECT_NEAR(evaluation.loss, expected, 1e-11 * expected) << "step " << step;
  }

  RunConfig undisturbed = layout();
  undisturbed.checkpoint.enable = false;
  EXPECT_EQ(train(undisturbed, {}).last_step.loss, result.last_step.loss) << "evaluating and saving change nothing";
}

// One microbatch: every level adds the same values in the same order, so losses, evaluations and saved weights have the
// same bits. Replicas add theirs last.
TEST_F(Train, EveryLevelOfZeroGivesTheSameBitsAndSavesTheSameModel) {
  RunConfig config = this->config();
  config.training.dtype = DType::bfloat16;
  config.training.eval_batches = 2;
  config.training.micro_batch_size = 2;
  config.checkpoint.interval = config.training.steps;
  for (const int replicas : {1, 2}) {
    config.parallelism.data_parallel_replicate_degree = replicas;
    config.parallelism.data_parallel_shard_degree = 2;
    config.training.global_batch_size = 4 * replicas;
    std::vector<double> losses;
    std::string saved;
    for (const int level : {1, 2, 3}) {
      config.parallelism.zero_level = level;
      config.output.dir = (scratch_ / fmt::format("level{}-{}", level, replicas)).string();
      const TrainResult result = train(config, {});
      std::ifstream file(result.model_folder / "model.safetensors", std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      if (level == 1) {
        losses = {result.last_step.loss, result.last_step.grad_norm, *result.validation_loss};
        saved = bytes;
      }
      EXPECT_EQ((std::vector{result.last_step.loss, result.last_step.grad_norm, *result.validation_loss}), losses)
          << level;
      EXPECT_GT(bytes.size(), 1000U);
      EXPECT_EQ(bytes, saved) << level;
    }
  }
}

// The placement of ranks changes no result: the same bits, and one order continues from what another one saved.
TEST_F(Train, AnOrderOfTheAxesKeepsEveryBitAndLoadsWhatAnotherSaved) {
  RunConfig config = layout();
  config.training.steps = 2;
  config.parallelism.data_parallel_replicate_degree = 2;
  config.checkpoint.interval = config.training.steps;
  const auto outcome_of = [&](const char* order, const char* folder) {
    config.parallelism.order = parse_axis_order("order", {order});
    config.output.dir = (scratch_ / folder).string();
    const TrainResult result = train(config, {});
    return std::tuple(result.model_folder, result.last_step.loss, result.last_step.grad_norm, *result.validation_loss);
  };
  const auto plain = outcome_of("tp-cp-dp_shard-pp-dp_replicate", "plain"),
             moved = outcome_of("pp-dp_replicate-tp-dp_shard", "moved");
  EXPECT_EQ(std::get<1>(plain), std::get<1>(moved));
  EXPECT_EQ(std::get<2>(plain), std::get<2>(moved));
  EXPECT_EQ(std::get<3>(plain), std::get<3>(moved));
  config.checkpoint.initial_load_path = std::get<0>(plain).string();
  const auto plain_again = outcome_of("tp-cp-dp_shard-pp-dp_replicate", "plain-again");
  config.checkpoint.initial_load_path = std::get<0>(moved).string();
  const auto moved_again = outcome_of("dp-tp-pp", "moved-again");
  EXPECT_LT(std::get<1>(plain_again), std::get<1>(plain));
  EXPECT_EQ(std::get<1>(plain_again), std::get<1>(moved_again));
  EXPECT_EQ(std::get<3>(plain_again), std::get<3>(moved_again));
}

// A saved model loads into any other sharding.
TEST_F(Train, WhatWasSavedIsLoadedAtEveryLevelOfZero) {
  RunConfig config = layout();
  config.training.steps = 1;
  config.lr_scheduler.warmup_steps = 0;
  config.parallelism.zero_level = 3;
  const std::filesystem::path model = train(config, {}).model_folder;
  const double expected = validation_loss_of(model);
  config.checkpoint.initial_load_path = model.string();
  for (const int level : {1, 2, 3})
    for (const int replicas : {1, 2}) {
      config.parallelism = {};
      config.parallelism.zero_level = level;
      config.parallelism.data_parallel_shard_degree = 3;
      config.parallelism.data_parallel_replicate_degree = replicas;
      config.training.global_batch_size = 12;
      EXPECT_NEAR(evaluate(config).loss, expected, 1e-11 * expected) << level << " " << replicas;
    }
}

TEST_F(Train, IntervalsAreKept) {
  RunConfig config = layout();
  config.training.steps = 5;
  config.training.eval_interval = 2;
  config.training.eval_batches = 1;
  config.checkpoint.interval = 3;
  config.checkpoint.keep_latest_k = 0;
  testing::ReportLog log;
  (void)train(config, {.observer = &log});
  std::vector<std::int64_t> evaluated;
  for (const EvaluationReport& report : log.evaluations) {
    evaluated.push_back(report.step);
    EXPECT_EQ(report.tokens, config.training.global_batch_size * config.training.seq_len);
  }
  EXPECT_THAT(evaluated, ElementsAre(2, 4, 5));
  EXPECT_THAT(steps_in(checkpoints()), ElementsAre(3, 5));
}

// Traffic before the first step, of evaluation and of saving does not count as a step's.
TEST_F(Train, StepsReportTheBytesOfStepsAlone) {
  testing::ReportLog log;
  RunConfig config = layout();
  config.training.eval_interval = 1;
  static_cast<void>(train(config, {.observer = &log}));
  ASSERT_EQ(log.steps.size(), 4U);
  EXPECT_FALSE(log.steps[0].comm_bytes.empty());
  for (const StepReport& report : log.steps) EXPECT_EQ(report.comm_bytes, log.steps[0].comm_bytes);
}

TEST_F(Train, EvaluationDoesNotDependOnBatchesAndLayout) {
  RunConfig config = layout();
  config.training.steps = 1;
  config.lr_scheduler.warmup_steps = 0;
  const std::filesystem::path model = train(config, {}).model_folder;
  const double expected = validation_loss_of(model);
  for (const std::int64_t batch_size : {4, 20, 1000}) {
    config.training.global_batch_size = batch_size;
    config.checkpoint.initial_load_path = model.string();
    const EvaluationResult result = evaluate(config);
    EXPECT_EQ(result.num_targets, num_validation_tokens - 1);
    EXPECT_NEAR(result.loss, expected, 1e-11 * expected) << batch_size;
  }
}

// Steps so small that they change no bfloat16: what is saved is what was loaded, which needs master weights that were
// loaded too.
TEST_F(Train, BeginsWithTheInitialWeights) {
  RunConfig config = layout();
  const std::filesystem::path model = train(config, {}).model_folder;
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
    config.training.dtype = dtype;
    config.checkpoint.initial_load_path = model.string();
    config.output.dir = (scratch_ / fmt::format("again-{}", name_of(dtype))).string();
    config.optimizer.lr = 1e-12;
    const std::filesystem::path again = train(config, {}).model_folder;
    const double expected = validation_loss_of(model), tolerance = dtype == DType::bfloat16 ? 0.02 : 1e-6;
    EXPECT_GT(std::abs(expected - std::log(static_cast<double>(config.model.vocab_size))), 0.1)
        << "a model of zeros must not pass";
    EXPECT_NEAR(validation_loss_of(again), expected, tolerance * expected) << name_of(dtype);
  }
}

TEST_F(Train, EndsWhenItDiverges) {
  RunConfig config = layout();
  config.optimizer.lr = 1e200;
  const std::string error = error_of([&] { (void)train(config, {}); });
  EXPECT_THAT(error, HasSubstr("diverged"));
  EXPECT_THAT(steps_in(checkpoints()), ElementsAre(1)) << "what diverged is not saved";
}

TEST_F(Train, StopsAndSavesWhenAsked) {
  RunConfig config = layout();
  config.training.steps = 1000;
  config.checkpoint.interval = 1000;
  RunRequests requests;
  testing::ReportLog log;
  log.after_step = [&](const StepReport& report) {
    if (report.step == 2) requests.end = RunRequest::interrupt;
  };
  const TrainResult result = train(config, {.observer = &log, .requests = &requests});
  EXPECT_EQ(result.ended_by, RunRequest::interrupt);
  EXPECT_EQ(result.last_step.step, 3);
  EXPECT_EQ(result.checkpoint, step_folder(checkpoints(), 3));
  EXPECT_TRUE(result.model_folder.empty()) << "that is what a run leaves at its end";
  EXPECT_FALSE(result.validation_loss.has_value()) << "whoever stops a run waits for it";
}

TEST_F(Train, EndsOnAllRanksWhenTheLastSaveFails) {
  std::filesystem::create_directories(checkpoints());
  put(step_folder(checkpoints(), 4), "a file in its place");
  const std::string error = error_of([&] { (void)train(layout(), {}); });
  EXPECT_THAT(error, AllOf(HasSubstr("rank 0"), HasSubstr("step 4 could not be saved"), HasSubstr("step-3")));
}

/// Files of more than a few bytes cannot be written, as on a full disk.
class FullDisk {
 public:
  FullDisk() {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = 16;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = std::signal(SIGXFSZ, SIG_IGN);
};

TEST_F(Train, ContinuesAfterASaveThatFails) {
  RunConfig config = layout();
  config.parallelism.zero_level = 3;
  config.checkpoint.keep_latest_k = 0;
  testing::ReportLog log;
  std::optional<FullDisk> full;
  log.after_step = [&](const StepReport& report) {
    if (report.step == 2) full.emplace();
  };
  log.after_warning = [&] { full.reset(); };
  const TrainResult result = train(config, {.observer = &log});
  EXPECT_THAT(steps_in(checkpoints()), ElementsAre(1, 3, 4));
  EXPECT_EQ(result.checkpoint, step_folder(checkpoints(), 4));
  EXPECT_THAT(log.warnings, ElementsAre(AllOf(HasSubstr("step 2 could not be saved"), HasSubstr("step-1"))));
  EXPECT_FALSE(std::filesystem::exists(step_folder(checkpoints(), 2)));
}

TEST_F(Train, EndsWithTheThirdSaveInARowThatFails) {
  RunConfig config = layout();
  config.training.steps = 100;
  testing::ReportLog log;
  std::optional<FullDisk> full;
  log.after_step = [&](const StepReport& report) {
    if (report.step == 2) full.emplace();
  };
  const std::string error = error_of([&] { (void)train(config, {.observer = &log}); });
  EXPECT_THAT(error, AllOf(HasSubstr("step 4 could not be saved"), HasSubstr("step-1")));
  EXPECT_THAT(log.warnings, SizeIs(2));
  EXPECT_THAT(steps_in(checkpoints()), ElementsAre(1));
}

// Ranks that write gather each other's parameters: one that cannot write must not leave the others waiting.
TEST_F(Train, RanksThatCannotWriteStillGather) {
  class LostFolder final : public RunObserver {
   public:
    LostFolder(const RunConfig& config, std::filesystem::path folder) : config_(config), folder_(std::move(folder)) {}
    void starts(const RankView& rank) override {
      ModelWriter writer({.folder = folder_, .model = config_.model, .dtype = config_.training.dtype});
      Comm& all = rank.mesh.comm(step_group);
      if (all.rank() == 0) {
        writer.begin();
        std::filesystem::remove_all(temporary_name(folder_));
      }
      all.barrier().wait();
      try {
        rank.run.model().save(writer, rank.ops, rank.mesh);
      } catch (const Failure&) {
        ++num_failed;
      }
    }
    std::atomic<int> num_failed = 0;

   private:
    const RunConfig& config_;
    std::filesystem::path folder_;
  };
  RunConfig config = layout();
  config.parallelism.zero_level = 3;
  config.training.steps = 2;
  LostFolder observer(config, scratch_ / "lost");
  (void)train(config, {.observer = &observer});
  EXPECT_GT(observer.num_failed, 1);
  EXPECT_LT(observer.num_failed, 8);
}

TEST_F(Train, ASecondRunIntoAFolderIsRefusedWhileTheFirstLasts) {
  testing::ReportLog log;
  std::string error;
  log.after_step = [&](const StepReport& report) {
    if (report.step == 2) error = error_of([&] { (void)train(config(), {}); });
  };
  (void)train(config(), {.observer = &log});
  EXPECT_THAT(error, AllOf(HasSubstr("output.dir"), HasSubstr(fmt::format("process {} on ", getpid()))));
  EXPECT_THAT(steps_in(checkpoints()), ElementsAre(3, 4));
  EXPECT_EQ(train(config(), {}).last_step.step, 4) << "the folder is free again";
}

TEST_F(Train, ItsModelNamesTheTokensOfItsTokenizer) {
  RunConfig config = layout();
  const std::filesystem::path file = scratch_ / "tokenizer.json";
  config.checkpoint.tokenizer = file.string();
  put(file, R"({"added_tokens":[{"id":2,"content":"</s>","special":true}],)"
            R"("model":{"type":"BPE","vocab":{"a":0,"<s>":1,"</s>":2},"merges":[]}})");
  put(scratch_ / "special_tokens_map.json", R"({"bos_token":"<s>","eos_token":{"content":"</s>"}})");
  const std::filesystem::path model = train(config, {}).model_folder;
  const auto written = nlohmann::json::parse(read_text(model / "config.json"));
  EXPECT_EQ(written.at("bos_token_id"), 1);
  EXPECT_EQ(written.at("eos_token_id"), 2);
  EXPECT_EQ(read_text(model / "tokenizer.json"), read_text(file));
  EXPECT_TRUE(std::filesystem::exists(model / "special_tokens_map.json"));

  put(file, R"({"model":{"type":"WordPiece","vocab":{"a":0}}})");
  EXPECT_THAT(error_of([&] { (void)train(config, {}); }),
              HasSubstr("tokenizer.model.type = WordPiece is not supported"));
  config.checkpoint.tokenizer = (scratch_ / "tokenizer.model").string();
  EXPECT_THAT(error_of([&] { (void)train(config, {}); }), HasSubstr("tokenizer.model' is not a tokenizer.json (use"));
}

TEST_F(Train, IsRefusedBeforeTheFirstStep) {
  testing::ReportLog log;
  const auto refusal = [&](const RunConfig& config) {
    return error_of([&] { (void)train(config, {.observer = &log}); });
  };
  RunConfig small_vocabulary = layout();
  small_vocabulary.model.vocab_size = 41;  // training data ends below, validation data does not
  EXPECT_THAT(refusal(small_vocabulary), HasSubstr(small_vocabulary.data.validation_path));

  RunConfig without_tokenizer = layout();
  without_tokenizer.checkpoint.tokenizer = (scratch_ / "tokenizer.json").string();
  EXPECT_THAT(refusal(without_tokenizer), HasSubstr(without_tokenizer.checkpoint.tokenizer));

  RunConfig more_tokens = without_tokenizer;
  BpeTrainer trainer;
  trainer.add("text");
  Tokenizer(trainer.train(257)).save(more_tokens.checkpoint.tokenizer);
  EXPECT_THAT(refusal(more_tokens),
              AllOf(HasSubstr("checkpoint.tokenizer = '" + more_tokens.checkpoint.tokenizer + "' makes token 256"),
                    HasSubstr("vocab_size is 128, not at least 257 (use a larger model.vocab_size")));
  more_tokens.checkpoint.initial_load_path = scratch_.path().string();
  more_tokens.checkpoint.tokenizer.clear();
  EXPECT_THAT(refusal(more_tokens), HasSubstr((scratch_ / "tokenizer.json").string() + " makes token 256"));

  RunConfig of_one_document = layout();
  of_one_document.data.reset_attention_mask = true;
  EXPECT_THAT(refusal(of_one_document), AllOf(HasSubstr("data.reset_attention_mask = true, but"),
                                              HasSubstr("1000 tokens are one document (use false)")));
  of_one_document.data.reset_attention_mask = false;
  of_one_document.data.reset_position_ids = true;
  EXPECT_THAT(refusal(of_one_document), HasSubstr("data.reset_position_ids = true, but"));

  std::filesystem::create_directories(step_folder(checkpoints(), 2));
  put(step_folder(checkpoints(), 2) / "notes.txt", "not to be deleted");
  EXPECT_THAT(refusal(layout()), HasSubstr("step-2 is not a checkpoint"));
  EXPECT_TRUE(std::filesystem::exists(step_folder(checkpoints(), 2) / "notes.txt"));

  std::filesystem::remove_all(checkpoints());
  put(checkpoints(), "a file where the folder should be");
  EXPECT_THAT(refusal(layout()),
              AllOf(HasSubstr("cannot be written to: " + checkpoints().string()), HasSubstr("use another output.dir")));
  EXPECT_EQ(log.steps.size(), 0U);
}

TEST_F(Train, OutputFoldersThatCannotBeMadeAreBadInput) {
  put(scratch_ / "a file", "");
  for (const std::string& folder :
       {(scratch_ / "a file").string(), (scratch_ / "a file/x").string(), std::string("/proc/x")}) {
    RunConfig config = layout();
    config.output.dir = folder;
    try {
      (void)train(config, {});
      ADD_FAILURE() << folder;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), ExitStatus::bad_input) << folder;
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("output.dir = '{}' cannot be written to: ", folder)));
    }
  }
}

}  // namespace
}  // namespace echelon
