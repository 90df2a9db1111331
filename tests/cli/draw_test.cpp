#include "cli/program.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
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

nlohmann::json drawn(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "draw");
  flags.emplace_back("--json");
  const Outcome outcome = run_echelon(flags);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out);
}

// Qi et al. 2023 (arXiv:2401.10241), table 5, GPT-1.5B with 24 microbatches, from the times of its table 6.
TEST(Draw, GivesPublishedBubbleRatesFromFlagsAlone) {
  const auto rate = [](const std::string& schedule, const std::string& limit) {
    return drawn({"--schedule=" + schedule, "--stages=8", "--microbatches=24", "--forward-ms=18.522",
                  "--backward-input-ms=18.086", "--backward-weight-ms=9.337", "--p2p-ms=0.601",
                  "--memory-limit=" + limit});
  };
  EXPECT_NEAR(rate("1F1B", "0")["bubble_rate"], 0.2431, 0.5e-4);
  EXPECT_NEAR(rate("1F1B", "0")["cost_ms"], 24 * (18.522 + 18.086 + 9.337) / (1 - 0.2431), 0.2);
  EXPECT_NEAR(rate("zb-1P", "8")["bubble_rate"], 0.1585, 0.5e-4);
  const nlohmann::json twice = rate("ZB-2p", "16");
  EXPECT_LE(twice["bubble_rate"], 0.0433 + 0.5e-4);
  ASSERT_EQ(twice["stages"].size(), 8U);
  for (const auto& stage : twice["stages"]) {
    EXPECT_LE(stage["peak_in_flight"], 16);
    EXPECT_DOUBLE_EQ(stage["backward_input_frees"].get<double>() + stage["backward_weight_frees"].get<double>(), 1);
  }
}

TEST(Draw, MemoryIsWhatTheFlagsSay) {
  const nlohmann::json half = drawn({"--schedule=ZB-H1", "--stages=3", "--microbatches=6", "--weight-memory=0.5"});
  EXPECT_EQ(half["stages"][0]["peak_in_flight"], 3);
  EXPECT_EQ(half["stages"][2]["peak_in_flight"], 2);  // two deferred at a half each, one in flight
  EXPECT_EQ(half["stages"][2]["backward_weight_frees"], 0.5);
  const nlohmann::json fused = drawn({"--stages=3", "--microbatches=6"});
  EXPECT_EQ(fused["stages"][2]["peak_in_flight"], 1);
}

TEST(Draw, EverySchedulesNameInAnyCase) {
  for (const std::string name : {"NAIVE", "gpipe", "1f1b", "interleaved1f1B", "loopedBFS", "interleavedzerobubble",
                                 "zb-h1", "zbH2", "ZB-1P", "zb-2p", "zb-v", "ZBVZeroBubble", "dualpipev"}) {
    const nlohmann::json json = drawn({"--schedule=" + name, "--stages=2", "--microbatches=4"});
    EXPECT_GE(json["events"].size(), 16U) << name;
    EXPECT_GE(json["bubble_rate"], 0) << name;
  }
}

TEST(Draw, SvgTraceAndFile) {
  const std::string path = scratch_folder() + "/schedule.svg";
  const Outcome svg =
      run_echelon({"draw", "--schedule=ZB-V", "--stages=2", "--microbatches=4", "--format=svg", "--output=" + path});
  EXPECT_EQ(svg.status, 0) << svg.err;
  EXPECT_EQ(svg.out, "");
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_TRUE(text.starts_with("<svg "));
  EXPECT_TRUE(text.ends_with("</svg>\n"));
  std::size_t boxes = 0;
  for (std::size_t at = text.find("<title>"); at != std::string::npos; at = text.find("<title>", at + 1)) ++boxes;
  EXPECT_EQ(boxes, 2U * 2 * 4 * 3);

  const Outcome trace = run_echelon({"draw", "--schedule=ZB-V", "--stages=2", "--microbatches=4", "--format=trace"});
  const auto events = nlohmann::json::parse(trace.out)["traceEvents"];
  EXPECT_EQ(std::count_if(events.begin(), events.end(), [](const auto& event) { return event["ph"] == "X"; }),
            2 * 2 * 4 * 3);
}

TEST(Draw, AScheduleOfPyTorchsFile) {
  const Outcome outcome =
      run_echelon({"draw", "--schedule-csv=" ECHELON_SOURCE_DIR "/tests/schedule/torch_csv/ZBVZeroBubble-2-4-2.csv"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, run_echelon({"draw", "--schedule=ZB-V", "--stages=2", "--microbatches=4"}).out);
}

TEST(Draw, NothingTakesTimeAndOneOfEach) {
  EXPECT_EQ(drawn({"--forward-ms=0", "--backward-input-ms=0", "--backward-weight-ms=0"})["bubble_rate"], 0);
  EXPECT_EQ(run_echelon({"draw", "--forward-ms=0", "--backward-input-ms=0", "--backward-weight-ms=0"}).status, 0);
  EXPECT_EQ(
      run_echelon({"draw", "--forward-ms=0", "--backward-input-ms=0", "--backward-weight-ms=0", "--format=svg"}).status,
      0);
  for (const std::string name : {"naive", "1F1B", "Interleaved1F1B", "ZB-H2", "ZB-2p", "ZB-V"})
    EXPECT_EQ(run_echelon({"draw", "--schedule=" + name, "--stages=1", "--microbatches=1"}).status, 0) << name;
}

}  // namespace
}  // namespace echelon
