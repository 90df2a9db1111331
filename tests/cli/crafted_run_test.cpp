// What somebody planted in an output folder, and checkpoints that are whole but describe another run.
#include "cli/crafted_folder.h"

#include "checkpoint/scratch_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// What is planted below output.dir, and where a run would follow it to.
TEST(PlantedLinks, AreNotWrittenThrough) {
  for (const char* planted : {"checkpoint/step-3", "checkpoint/step-3/attempt-0002-rank-00000.safetensors",
                              "metrics.jsonl", "run.lock", "export", "checkpoint/step-3/attempt-0002-manifest.json.tmp",
                              "checkpoint/step-3/tokenizer.json", "model", "model.tmp"}) {
    SCOPED_TRACE(planted);
    const CraftedFolder folder;
    const fs::path link = folder.out() / planted;
    fs::create_directories(link.parent_path());
    fs::create_directories(folder.outside() / "folder");
    put(folder.outside() / "folder/config.json", "the user's own");
    const bool is_file = link.has_extension() || link.filename() == "run.lock";
    fs::create_symlink(
        is_file && link.extension() != ".tmp" ? folder.outside() / "secret" : folder.outside() / "folder", link);
    std::vector<std::string> train = folder.on_checkpoint("train");
    train.insert(train.end(), {"--checkpoint.interval=1", "--checkpoint.export_interval=1"});
    const Outcome outcome = folder.run(train);
    EXPECT_EQ(outcome.status, 2) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr((folder.out() / planted).parent_path().string()));
  }
}

// The checkpoints' folder, too, is below output.dir; and of a damaged checkpoint, which is written again.
TEST(PlantedLinks, OfFoldersAndCopiesAreNotFollowed) {
  const CraftedFolder folder;
  fs::rename(folder.out() / "checkpoint", folder.path() / "elsewhere");
  fs::create_symlink(folder.path() / "elsewhere", folder.out() / "checkpoint");
  const Outcome outcome = folder.run(folder.on_checkpoint("train"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("checkpoint is a link, but a run writes nothing outside of output.dir"));
}

// The config in a manifest describes a run. What it names is neither read nor written.
TEST(CraftedCheckpoints, WithPathsInTheirConfigHaveNoEffect) {
  const CraftedFolder folder;
  const std::string secret = (folder.outside() / "secret").string();
  const auto set = [&](const std::string& key, const std::string& was, const std::string& is) {
    folder.change_manifest(fmt::format("{} = \\\"{}\\\"", key, was), fmt::format("{} = \\\"{}\\\"", key, is));
  };
  set("dir", "out", (folder.outside() / "stolen").string());
  set("path", "data", secret);
  set("tokenizer", "", secret);
  set("machine", "", secret);
  set("initial_load_path", "", folder.outside());
  set("pipeline_parallel_schedule_csv", "", secret);
  set("validation_path", "", "\\\\u001b[31m");
  for (const char* command : {"train", "eval", "inspect", "verify", "convert"}) {
    const Outcome outcome = folder.run(folder.on_checkpoint(command));
    EXPECT_EQ(outcome.status, 0) << command << outcome.err;
  }
}

// Values that no run has, but that a manifest may have: a run ends with them, or refuses them.
TEST(CraftedCheckpoints, WithTheLargestValues) {
  const std::string largest = "9007199254740992";
  for (const auto& [key, value] : {std::pair{"sequences", "8"},
                                   {"first_lr_step", "0"},
                                   {"step", "2"},
                                   {"seq_len", "8"},
                                   {"steps_since_scale_changed", "2"},
                                   {"loss_scale", "1024.0"},
                                   {"attempt", "1"}}) {
    SCOPED_TRACE(key);
    const CraftedFolder folder;
    folder.change_manifest(fmt::format("\"{}\":{}", key, value), fmt::format("\"{}\":{}", key, largest));
    for (const char* command : {"train", "eval", "inspect", "convert"}) {
      const Outcome outcome = folder.run(folder.on_checkpoint(command));
      EXPECT_TRUE(outcome.status == 0 || outcome.status == 2) << command << outcome.status << outcome.err;
    }
  }
}

TEST(CraftedCheckpoints, OfAnotherRunAreNotResumed) {
  const CraftedFolder folder;
  folder.change_manifest("lr = 0.", "lr = 0.9");
  std::vector<std::string> train = folder.on_checkpoint("train");
  train.back() = "--checkpoint.load=auto";
  const Outcome outcome = folder.run(train);
  EXPECT_EQ(outcome.status, 2) << outcome.out;
  EXPECT_THAT(outcome.err, HasSubstr("is of a run with other values: optimizer.lr"));
}

// Of `auto`: it passes over what cannot be read, with a warning, and does not start again from nothing.
TEST(CraftedCheckpoints, ArePassedOverWhereThatIsSafe) {
  const CraftedFolder folder;
  folder.change_manifest("model.norm.weight\",[16]", "\\u001b]0;x\\u0007\",[0]");
  std::vector<std::string> train = folder.on_checkpoint("train");
  train.back() = "--checkpoint.load=auto";
  const Outcome outcome = folder.run(train);
  EXPECT_EQ(outcome.status, 2) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("warning: passing over step 2"));
  EXPECT_THAT(outcome.err, HasSubstr("no checkpoint in"));
}

}  // namespace
}  // namespace echelon
