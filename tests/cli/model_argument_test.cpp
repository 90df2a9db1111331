// MODEL means the same to every command: a config, a Hugging Face folder or a preset.
#include "cli/model_argument.h"

#include "cli/program.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace echelon {
namespace {

using testing::HasSubstr;

TEST(ModelArgument, IsAConfigAFolderOrAPreset) {
  const auto folder = std::filesystem::path(scratch_folder()) / "echelon-model-argument";
  std::filesystem::create_directories(folder);
  EXPECT_EQ(source_of_model("run.toml", {}).path, "run.toml");
  EXPECT_EQ(source_of_model("", {}).path, "");
  EXPECT_EQ(source_of_model(folder, {}).model_path, folder.string());
  EXPECT_THAT(source_of_model("llama3-8b", {"--training.steps=3"}).arguments,
              testing::ElementsAre("--model.preset=llama3-8b", "--training.steps=3"));
  EXPECT_THAT(source_of_model("llama9", {}).arguments, testing::ElementsAre("--model.preset=llama9"));
  std::filesystem::remove_all(folder);
}

TEST(ModelArgument, IsTakenByEveryCommand) {
  const std::vector<std::vector<std::string>> commands = {
      {"train", "llama-1m", "--show-config"},
      {"verify", "llama-1m", "--layers=1", "--hidden=16", "--steps=1"},
      {"inspect", "llama-1m"},
      {"simulate", "llama-1m", "--machine=h100"},
      {"plan", "llama-1m", "--machine=h100", "--gpus=1", "--global-batch-size=1", "--seq-len=64"},
  };
  for (const auto& command : commands) EXPECT_EQ(run_echelon(command).status, 0) << command[0];
  for (const char* const command : {"train", "verify", "inspect", "simulate", "plan", "tune", "eval", "generate"})
    EXPECT_THAT(run_echelon({command, "--help"}).out, HasSubstr("Positionals:\n  model")) << command;
}

}  // namespace
}  // namespace echelon
