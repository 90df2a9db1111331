// Checkpoints that are damaged, or of another run: passed over with a warning where that is safe, else refused in one
// sentence, and never deleted.
#include "resume/small_run.h"

#include "checkpoint/state/step_folders.h"
#include "checkpoint/steps_in.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

namespace echelon::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void flip_bit(const std::filesystem::path& file, std::int64_t byte) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  const std::int64_t at = byte >= 0 ? byte : static_cast<std::int64_t>(std::filesystem::file_size(file)) + byte;
  stream.seekg(at);
  const char value = static_cast<char>(stream.get() ^ 0x10);
  stream.seekp(at);
  stream.put(value);
}

class Damaged : public SmallRun {
 protected:
  /// Checkpoints after steps 3, 6 and 7, of two ranks.
  void SetUp() override {
    SmallRun::SetUp();
    expected_ = run(config("whole"));
    (void)run(config("run"), 7);
  }
  RunConfig config(const std::string& folder) const {
    RunConfig config = SmallRun::config(folder);
    config.parallelism.data_parallel_shard_degree = 2;
    return config;
  }
  std::filesystem::path steps() const { return output("run") / "checkpoint"; }
  std::filesystem::path state_file(std::int64_t step, int rank = 1) const {
    return checkpoint("run", step) / fmt::format("attempt-0001-rank-{:05}.safetensors", rank);
  }
  std::filesystem::path manifest(std::int64_t step) const {
    return checkpoint("run", step) / "attempt-0001-manifest.json";
  }
  std::string refusal(const RunConfig& config) {
    ReportLog log;
    try {
      (void)run(config, log);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), ExitStatus::bad_input) << error.what();
      EXPECT_THAT(log.steps, IsEmpty());
      return error.what();
    }
    ADD_FAILURE() << "not refused";
    return "";
  }
  std::string refusal(const std::function<void(RunConfig&)>& change) {
    RunConfig changed = config("run");
    change(changed);
    return refusal(changed);
  }

  Steps expected_;
};

// Each kind of damage of the last checkpoint, and what of it is said.
TEST_F(Damaged, ALastCheckpointIsPassedOverAndNeitherCountedNorDeleted) {
  const std::filesystem::path whole = scratch_ / "whole-steps";
  std::filesystem::copy(steps(), whole, std::filesystem::copy_options::recursive);
  struct Kind {
    std::function<void()> damage;
    std::string said;
  };
  const Kind kinds[] = {
      {[&] { flip_bit(state_file(7), -5); }, "attempt-0001-rank-00001.safetensors is damaged: block 0"},
      {[&] { flip_bit(state_file(7), 100); }, "attempt-0001-rank-00001.safetensors is damaged: its header"},
      {[&] { flip_bit(manifest(7), 500); }, "attempt-0001-manifest.json is damaged"},
      {[&] { std::filesystem::remove(state_file(7)); }, "attempt-0001-rank-00001.safetensors"},
      {[&] { std::filesystem::resize_file(state_file(7), 5000); }, "it is cut off"},
      {[&] { std::filesystem::resize_file(state_file(7), 600'000); }, "it is too long"},
      {[&] { std::filesystem::resize_file(manifest(7), 700); }, "is not a manifest, or it is cut off"},
      {[&] { std::filesystem::resize_file(manifest(7), 0); }, "is not a manifest, or it is cut off"},
  };
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.said);
    std::filesystem::remove_all(output("run"));
    std::filesystem::create_directories(output("run"));
    std::filesystem::copy(whole, steps(), std::filesystem::copy_options::recursive);
    kind.damage();
    RunConfig asked = config("run");
    asked.checkpoint.load = "7";
    EXPECT_THAT(refusal(asked), HasSubstr(kind.said)) << "a step that is asked for is not passed over";

    RunConfig again = config("run");
    again.checkpoint.keep_latest_k = 2;
    ReportLog log;
    (void)run(again, log, 8);
    EXPECT_THAT(log.warnings, ElementsAre(AllOf(HasSubstr("passing over step 7"), HasSubstr(kind.said))));
    EXPECT_THAT(log.lines, Contains(HasSubstr("resuming from step 6")));
    EXPECT_EQ(steps_of(log), after(6, expected_));
    EXPECT_THAT(steps_in(steps()), ElementsAre(6, 7, 8)) << "two that can be read, and the damaged one";
  }
}

TEST_F(Damaged, ACheckpointIsReplacedByALaterAttempt) {
  flip_bit(state_file(7), -5);
  RunConfig config = this->config("run");
  config.checkpoint.interval = 1;
  EXPECT_EQ(run(config), after(6, expected_));
  EXPECT_EQ(StateReader(checkpoint("run", 7)).manifest().attempt, 2);
  StateReader(checkpoint("run", 7)).verify();
  // The next attempt removes what is left of the first one.
  config.training.steps = 9;
  config.checkpoint.load = "latest";
  (void)run(config);
  EXPECT_FALSE(std::filesystem::exists(state_file(7)));
}

TEST_F(Damaged, NoCheckpointThatCanBeReadIsAnError) {
  for (const std::int64_t step : {3, 6, 7}) flip_bit(manifest(step), 500);
  EXPECT_THAT(refusal(config("run")), AllOf(HasSubstr("no checkpoint in"), HasSubstr("can be read")));
  EXPECT_THAT(steps_in(steps()), ElementsAre(3, 6, 7));
}

TEST_F(Damaged, OtherRequestsAreRefusedByName) {
  const auto load = [&](const std::string& value) {
    return refusal([&](RunConfig& config) { config.checkpoint.load = value; });
  };
  EXPECT_THAT(load("5"), HasSubstr("no checkpoint of that step (use 6)"));
  EXPECT_THAT(load("latets"), HasSubstr("(use latest)")) << "also where the folder has checkpoints";
  EXPECT_THAT(load((scratch_ / "nowhere").string()), HasSubstr("is not auto, none, latest, a step or a step's folder"));
  EXPECT_THAT(load(checkpoint("run", 5).string()), HasSubstr("no checkpoint of that step (use 6)"));
  EXPECT_THAT(load("none"), HasSubstr("has checkpoints up to step 7"));
  EXPECT_THAT(refusal([&](RunConfig& config) { config.model.intermediate_size = 96; }),
              AllOf(HasSubstr("another model or other moments"), HasSubstr("model.intermediate_size: was 64, is 96")));
  EXPECT_THAT(refusal([&](RunConfig& config) { config.optimizer.lr *= 2; }), HasSubstr("optimizer.lr: was"));
  EXPECT_THAT(refusal([&](RunConfig& config) { config.training.steps = 20; }),
              HasSubstr("training.steps: was 8, is 20"));
  write_data("longer", 1001);
  const auto longer = [&](RunConfig& config) { config.data.path = (scratch_ / "longer").string(); };
  EXPECT_THAT(refusal(longer), AllOf(HasSubstr("other data"), HasSubstr("2000 bytes"), HasSubstr("2002 bytes")));
  EXPECT_THAT(refusal([&](RunConfig& config) { config.training.seq_len = 8; }), HasSubstr("training.seq_len: was 16"));

  std::filesystem::create_directory(checkpoint("run", 8));
  put(checkpoint("run", 8) / "notes.txt", "of a person");
  EXPECT_THAT(refusal(config("run")), AllOf(HasSubstr("step-8"), HasSubstr("no manifest")));
  std::filesystem::remove_all(checkpoint("run", 8));
  std::filesystem::create_directory_symlink(checkpoint("run", 7), checkpoint("run", 8));
  EXPECT_THAT(refusal(config("run")), AllOf(HasSubstr("step-8 is a link"), HasSubstr("use another output.dir")));
  std::filesystem::remove(checkpoint("run", 8));
  std::filesystem::create_directory(checkpoint("run", 8));
  put(checkpoint("run", 8) / "notes.txt", "of a person");
  RunConfig elsewhere = config("elsewhere");
  elsewhere.checkpoint.load = checkpoint("run", 8).string();
  EXPECT_THAT(refusal(elsewhere), HasSubstr("no manifest"));
  elsewhere.checkpoint.load = checkpoint("run", 7).parent_path().string();
  EXPECT_THAT(refusal(elsewhere), HasSubstr("(use " + checkpoint("run", 7).string() + ")"));
  elsewhere.checkpoint.load = (scratch_ / "nowhere").string();
  EXPECT_THAT(refusal(elsewhere), HasSubstr("is not auto, none, latest, a step or a step's folder"));
  RunConfig from_nowhere = config("from_nowhere");
  from_nowhere.checkpoint.initial_load_path = "nowhere";
  EXPECT_THAT(refusal(from_nowhere), HasSubstr("checkpoint.initial_load_path = 'nowhere' is not a folder"));
  from_nowhere.lora.rank = 1;
  EXPECT_THAT(refusal(from_nowhere), HasSubstr("checkpoint.initial_load_path = 'nowhere' is not a folder"));
  elsewhere.checkpoint.load = "latets";
  EXPECT_THAT(refusal(elsewhere), AllOf(HasSubstr("'latets'"), HasSubstr("(use latest)")));
}

TEST_F(Damaged, TheFolderOfAStepOfItsOwnIsThatStep) {
  RunConfig config = this->config("run");
  config.checkpoint.load = (checkpoint("run", 6) / "").string();
  ReportLog log;
  (void)run(config, log, 8);
  EXPECT_THAT(log.lines, Contains(HasSubstr("resuming from step 6")));
  EXPECT_EQ(steps_of(log), after(6, expected_));
}

TEST_F(Damaged, ARunThatStartedFromAnotherResumesFromItsOwnCheckpoints) {
  RunConfig config = this->config("branch");
  config.checkpoint.load = checkpoint("run", 3).string();
  (void)run(config, 6);
  ReportLog log;
  (void)run(config, log, 8);
  EXPECT_THAT(log.lines, Contains(HasSubstr("resuming from step 6")));
  EXPECT_THAT(log.warnings, ElementsAre(HasSubstr("which has its own checkpoints")));
  config.optimizer.lr *= 2;
  EXPECT_THAT(refusal(config), HasSubstr("optimizer.lr: was"));
}

TEST_F(Damaged, AnotherTokenizerIsRefused) {
  const auto config_with = [&](const std::string& tokenizer) {
    RunConfig config = this->config("tokens");
    config.checkpoint.tokenizer = (scratch_ / tokenizer).string();
    return config;
  };
  const std::string tokenizer = R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})";
  put(scratch_ / "one.json", tokenizer);
  put(scratch_ / "same.json", tokenizer);
  put(scratch_ / "other.json", tokenizer + "\n");
  (void)run(config_with("one.json"), 4);
  EXPECT_THAT(refusal(config_with("other.json")),
              AllOf(HasSubstr("other.json' is another tokenizer"), HasSubstr("exclude_from_loading=dataloader")));
  const Steps resumed = run(config_with("same.json"), 6);
  EXPECT_EQ(resumed.losses, (std::map<std::int64_t, double>{{5, expected_.losses.at(5)}, {6, expected_.losses.at(6)}}));
  RunConfig with_new_data = config_with("other.json");
  with_new_data.checkpoint.exclude_from_loading.dataloader = true;
  with_new_data.checkpoint.load = "latest";
  EXPECT_EQ(run(with_new_data, 8).losses.size(), 2U);
}

TEST_F(Damaged, AStepThatWasCutOffIsLitterOfADeadAttempt) {
  std::filesystem::remove(manifest(7));
  ReportLog log;
  (void)run(config("run"), log);
  EXPECT_THAT(log.warnings, IsEmpty());
  EXPECT_EQ(steps_of(log), after(6, expected_));
  EXPECT_FALSE(std::filesystem::exists(checkpoint("run", 7)));
}

}  // namespace
}  // namespace echelon::testing
