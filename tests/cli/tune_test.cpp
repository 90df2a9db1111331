// echelon tune with the real program: a tiny model on ranks that are threads.
#include "cli/program.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> tiny_model = {"--model.model_type=llama",          "--model.hidden_size=32",
                                             "--model.num_hidden_layers=4",       "--model.num_attention_heads=4",
                                             "--model.intermediate_size=64",      "--model.vocab_size=128",
                                             "--model.max_position_embeddings=64"};

std::string config_file() {
  const std::string path = scratch_folder() + "tune.toml";
  std::vector<std::string> arguments = {"train", "--show-config", "--training.seq_len=32",
                                        "--training.global_batch_size=8"};
  arguments.insert(arguments.end(), tiny_model.begin(), tiny_model.end());
  const Outcome shown = run_echelon(arguments);
  EXPECT_EQ(shown.status, 0) << shown.err;
  std::ofstream(path) << shown.out;
  return path;
}

// On a machine that is much faster than this one predictions are far off until they are fitted.
TEST(Tune, RunsTheBestFewAndRanksThemAgain) {
  const std::string config = config_file(), best = scratch_folder() + "tuned.toml",
                    machine = scratch_folder() + "tuned_machine.toml";
  const Outcome tuned = run_echelon({"tune", config, "--machine=a100-80", "--gpus=2", "--top=3", "--steps=3", "--json",
                                     "--output=" + best, "--machine-output=" + machine});
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const auto json = nlohmann::json::parse(tuned.out);
  EXPECT_GE(json["tried"].size(), 2U);
  EXPECT_GE(json["plans"].size(), 2U);
  EXPECT_LT(json["error_after"], json["error_before"]);
  for (const auto& each : json["tried"]) EXPECT_GT(each["measured_seconds"], 0);

  EXPECT_EQ(run_echelon({"inspect", best}).status, 0);
  const Outcome again = run_echelon({"plan", "--model=" + config, "--machine=" + machine, "--gpus=2", "--json"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_NEAR(nlohmann::json::parse(again.out)["plans"][0]["predicted_seconds"].get<double>(),
              json["plans"][0]["predicted_seconds"].get<double>(),
              1e-3 * json["plans"][0]["predicted_seconds"].get<double>());
}

TEST(Tune, SaysWhatItLearnt) {
  const Outcome tuned = run_echelon({"tune", config_file(), "--machine=a100-80", "--gpus=2", "--top=1", "--steps=1",
                                     "--parallelism.tensor_parallel_degree=2"});
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  for (const char* part :
       {"predicted", "measured", "learned: here operations take", "ranked again", "fastest of those"})
    EXPECT_THAT(tuned.out, HasSubstr(part));
}

TEST(Tune, RefusesInASentence) {
  EXPECT_THAT(run_echelon({"tune", "--machine=a100-80", "--gpus=2"}).err, HasSubstr("--model is missing"));
  EXPECT_EQ(run_echelon({"tune", config_file(), "--machine=a100-80", "--gpus=0"}).status, 2);
  EXPECT_THAT(
      run_echelon({"tune", config_file(), "--machine=a100-80", "--gpus=2", "--parallelism.tensor_parallel_degree=0"})
          .err,
      HasSubstr("parallelism.tensor_parallel_degree = 0 is below 1 (use 1)"));
}

}  // namespace
}  // namespace echelon
