#include "cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using testing::HasSubstr;

TEST(Help, IsThereForEveryVerb) {
  const Outcome outcome = run_echelon({"--help"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("draw"));
  EXPECT_EQ(run_echelon({"--version"}).status, 0);
  const Outcome draw = run_echelon({"draw", "--help"});
  EXPECT_EQ(draw.status, 0);
  EXPECT_THAT(draw.out, HasSubstr("--microbatches"));
}

// (p - 1) / (m + p - 1): Narayanan et al. 2021, section 2.2.
TEST(Draw, HasOneRowPerRankAndTheBubbleOfThePaper) {
  const Outcome outcome = run_echelon({"draw", "--schedule", "1f1b", "--stages", "2", "--microbatches", "3"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("rank 1"));
  EXPECT_THAT(outcome.out, HasSubstr("bubble: 25.0%"));
  EXPECT_EQ(outcome.err, "");
}

TEST(Draw, JsonHasEveryForwardAndBackward) {
  for (const std::string schedule : {"naive", "gpipe", "1F1B"}) {
    const Outcome outcome = run_echelon({"draw", "--schedule=" + schedule, "--stages=3", "--microbatches=4", "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(nlohmann::json::parse(outcome.out)["events"].size(), 3U * 4U * 2U);
  }
}

}  // namespace
}  // namespace echelon
