// echelon simulate as a user meets it.
#include "cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using testing::HasSubstr;

Outcome simulated(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"simulate",
                                        "--model.preset=llama3-8b",
                                        "--training.dtype=bfloat16",
                                        "--training.seq_len=4096",
                                        "--training.global_batch_size=64",
                                        "--parallelism.tensor_parallel_degree=4",
                                        "--parallelism.pipeline_parallel_degree=2",
                                        "--parallelism.data_parallel_shard_degree=8"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_echelon(arguments);
}

double sum_of(const nlohmann::json& parts) {
  double sum = 0;
  for (const auto& part : parts) sum += part.is_object() ? sum_of(part) : part.get<double>();
  return sum;
}

TEST(Simulate, JsonHasPartsThatAddUpAndTheNamesOfTrain) {
  const Outcome outcome = simulated({"--machine=h100", "--json", "--slow=rank=17:1.3", "--mtbf-hours=3", "--checkpoint-seconds=30"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  const double seconds = json["predicted_seconds"];
  EXPECT_NEAR(sum_of(json["parts"]), seconds, 1e-9 * seconds);
  for (const auto& rank : json["ranks"]) EXPECT_NEAR(sum_of(rank["parts"]), seconds, 1e-9 * seconds);
  EXPECT_EQ(json["stages"].size(), 2U);
  EXPECT_EQ(json["ranks"].size(), 4U);
  EXPECT_EQ(json["fits"], true);
  EXPECT_EQ(json["tokens"], 64 * 4096);
  EXPECT_EQ(json["world_size"], 64);
  EXPECT_GT(json["failures"]["goodput"], 0.5);
  for (const char* name : {"step_seconds", "tokens_per_second", "tflops", "mfu", "memory_peak_bytes", "comm_bytes"}) EXPECT_TRUE(json.contains(name)) << name;
}

TEST(Simulate, TextSaysWhereTheTimeGoes) {
  const Outcome outcome = simulated({"--machine=h100"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* words : {"64 ranks = pp 2 x dp_shard 8 x tp 4", "exposed communication, tp", "bubble", "optimizer", "fits", "sent in a step"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
}

TEST(Simulate, WritesTraceAndDrawing) {
  const std::string folder = testing::TempDir() + "echelon_simulate";
  std::filesystem::create_directories(folder);
  const Outcome outcome = simulated({"--machine=h100", "--trace=" + folder + "/step.json", "--svg=" + folder + "/step.svg"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::ifstream trace(folder + "/step.json"), svg(folder + "/step.svg");
  EXPECT_GT(nlohmann::json::parse(trace)["traceEvents"].size(), 32U);
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(svg), {}), HasSubstr("<svg"));
}

TEST(Simulate, BadInputIsOneSentence) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "--machine"},
      {{"--machine=h1000"}, "nearest: h100"},
      {{"--machine=h100", "--profile=none"}, "none"},
      {{"--machine=h100", "--slow=rank=64:2"}, "nearest: 63"},
      {{"--machine=h100", "--slow=rank=1:0"}, "nearest: 1"},
      {{"--machine=h100", "--slow=fast"}, "nearest: --slow rank=17:1.3"},
      {{"--machine=h100", "--slow=1:2", "--slow=rank=1:3"}, "a second time"},
      {{"--machine=h100", "--mtbf-hours=0"}, "nearest: 1"},
      {{"--machine=h100", "--mtbf-hours=1", "--checkpoint-seconds=-1"}, "nearest: 0"},
      {{"--machine=h100", "--checkpoint-seconds=1"}, "add --mtbf-hours"},
      {{"--machine=h100", "--svg=/nowhere/step.svg"}, "cannot be written"},
  };
  for (const auto& [more, words] : cases) {
    const Outcome outcome = simulated(more);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_THAT(outcome.err, HasSubstr(words));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

}  // namespace
}  // namespace echelon
