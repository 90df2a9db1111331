// Plans of sequences of a million tokens and more, and what a search for them takes.
#include "plan/search/search.h"

#include "base/error.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>

namespace echelon {
namespace {

using ::testing::HasSubstr;

PlanQuestion question(std::int64_t gpus, std::int64_t batch, std::int64_t seq_len) {
  PlanQuestion asked = {
      .model = "llama3-8b", .machine = "h100", .gpus = gpus, .global_batch_size = batch, .seq_len = seq_len, .top = 1};
  asked.settings = {fmt::format("--model.max_position_embeddings={}", seq_len)};
  return asked;
}

// Of equal tokens of a step. Work, not seconds, so that no busy machine fails it.
TEST(PlanOfLongSequences, TakesAtMostTwiceTheWorkOfShortOnes) {
  const PlanResult long_ones = find_plans(read_plan_request(question(4096, 4, 4'194'304))),
                   short_ones = find_plans(read_plan_request(question(4096, 2048, 8192)));
  for (const PlanResult& result : {std::cref(long_ones), std::cref(short_ones)}) {
    EXPECT_TRUE(result.is_complete);
    EXPECT_EQ(result.num_proven, 1);
  }
  EXPECT_GT(long_ones.plans.front().choice.shape.cp, 1);
  EXPECT_LE(long_ones.work, 2 * short_ones.work);
}

TEST(PlanOfLongSequences, OfAMillionTokensFits) {
  const PlanResult result = find_plans(read_plan_request(question(64, 1, 1'048'576)));
  ASSERT_FALSE(result.plans.empty());
  EXPECT_TRUE(result.plans.front().outcome.fits());
  EXPECT_EQ(result.plans.front().config.training.seq_len, 1'048'576);
  EXPECT_GT(result.plans.front().choice.shape.cp, 1);
  PlanQuestion asked = question(64, 1, 1'048'576);
  EXPECT_EQ(read_plan_request(asked).note, "");
}

// The positions of a preset with RoPE alone, which no user wrote.
TEST(PlanOfLongSequences, RaisesThePositionsOfAPreset) {
  PlanQuestion asked = question(64, 64, 1'048'576);
  asked.settings.clear();
  const PlanRequest request = read_plan_request(asked);
  EXPECT_EQ(request.base.model.max_position_embeddings, 1'048'576);
  EXPECT_EQ(request.note, "model.max_position_embeddings = 8192 of 'llama3-8b' is raised to --seq-len=1048576");
  asked.seq_len = 8192;
  EXPECT_EQ(read_plan_request(asked).note, "");

  const auto expect_refused = [](const PlanQuestion& refused) {
    try {
      (void)read_plan_request(refused);
      FAIL() << "positions beyond the model's are not refused";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("--model.max_position_embeddings=1048576"));
    }
  };
  asked.seq_len = 1'048'576;
  asked.settings = {"--model.max_position_embeddings=16384"};
  expect_refused(asked);
  asked.settings.clear();
  asked.model = "gpt2-124m";
  expect_refused(asked);
  asked.model = ECHELON_SOURCE_DIR "/examples/quickstart.toml";
  expect_refused(asked);
}

}  // namespace
}  // namespace echelon
