// echelon verify from the command line: its verdict, JSON and exit status. Its findings are tested in tests/verify.
#include "cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using testing::HasSubstr;

std::vector<std::string> verify_with(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"verify",
                                        "--model.model_type=llama",
                                        "--model.hidden_size=64",
                                        "--model.num_hidden_layers=6",
                                        "--model.num_attention_heads=4",
                                        "--model.intermediate_size=170",
                                        "--model.vocab_size=259",
                                        "--model.max_position_embeddings=64",
                                        "--training.seq_len=16",
                                        "--training.global_batch_size=8",
                                        "--parallelism.tensor_parallel_degree=2",
                                        "--parallelism.pipeline_parallel_degree=2",
                                        "--parallelism.data_parallel_shard_degree=2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Verify, TellsWhatItRanAndThatItIsEqual) {
  const Outcome outcome = run_echelon(verify_with({"--layers=3", "--hidden=16"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("= 8 ranks"));
  EXPECT_THAT(outcome.out, HasSubstr("; matmuls: float32 "));
  EXPECT_THAT(outcome.out, HasSubstr("num_hidden_layers 6 -> 3, hidden_size 64 -> 16"));
  EXPECT_THAT(outcome.out, HasSubstr("data: tokens by a formula"));
  EXPECT_THAT(outcome.out, HasSubstr("equal: "));
}

TEST(Verify, GivesTheVerdictAsJson) {
  const Outcome outcome = run_echelon(verify_with({"--layers=2", "--hidden=16", "--steps=2", "--json"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto verdict = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(verdict.at("equal"), true);
  EXPECT_EQ(verdict.at("world_size"), 8);
  EXPECT_EQ(verdict.at("steps"), 2);
  for (const char* quantity : {"loss", "gradient", "norm", "weight"})
    EXPECT_LE(verdict.at("worst").at(quantity).at("error").get<double>(),
              verdict.at("worst").at(quantity).at("tolerance").get<double>())
        << quantity;
  EXPECT_THAT(verdict.at("worst").at("gradient").at("tensor").get<std::string>(), HasSubstr("model."));
}

// Of a plan without a pipeline whose layers are as many stages.
TEST(Verify, HasFewerLayersThanStagesOfOnePipelineRank) {
  const Outcome outcome = run_echelon(
      verify_with({"--parallelism.pipeline_parallel_degree=1", "--parallelism.pipeline_parallel_schedule=LoopedBFS",
                   "--parallelism.virtual_stages=6", "--layers=2", "--hidden=16"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST(Verify, RefusesWhatCannotBeVerified) {
  const auto refused = [](const std::string& argument, const std::string& sentence) {
    const Outcome outcome = run_echelon(verify_with({argument}));
    EXPECT_EQ(outcome.status, 2) << argument;
    EXPECT_THAT(outcome.err, HasSubstr(sentence));
  };
  refused("--dtype=bfloat16", "(use float32)");
  refused("--steps=0", "(use 1)");
  refused("--steps=101", "--steps = 101 is more than training.steps = 100 (use 100)");
  refused("--layers=0.5", "--layers");
  const Outcome uneven = run_echelon(verify_with({"--parallelism.pipeline_parallel_layout=2,4", "--layers=3"}));
  EXPECT_THAT(uneven.err,
              HasSubstr("--layers = 3 cannot be split into the layout's 2 pipeline stages, which are kept (use 4)"));
  refused("--layers=7", "(use 6)");
  refused("--hidden=20", "--hidden = 20 is not a multiple of 8");
  refused("--hidden=72", "(use 64)");
  refused("--hiden=32", "did you mean --hidden?");
}

}  // namespace
}  // namespace echelon
