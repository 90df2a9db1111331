#include "report/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace echelon {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

StepReport step(std::int64_t number) {
  return {.step = number, .loss = 2.5, .tokens = 100, .step_seconds = 3, .tokens_per_second = 33.3};
}

TEST(Duration, ReadsLikeAClock) {
  EXPECT_EQ(duration(0), "0s");
  EXPECT_EQ(duration(41.2), "42s");
  EXPECT_EQ(duration(185), "3m05s");
  EXPECT_EQ(duration(7620), "2h07m");
  EXPECT_EQ(duration(4 * 86400 + 3 * 3600), "4d03h");
  EXPECT_EQ(duration(std::numeric_limits<double>::infinity()), "N/A");
  EXPECT_EQ(duration(-1), "N/A");
}

TEST(ProgressLog, HasPlainLinesAtTheirFrequencyAndTheTimeLeft) {
  std::ostringstream out;
  {
    Progress progress({.num_steps = 25, .log_freq = 10, .style = ProgressStyle::log}, out);
    for (std::int64_t i = 1; i <= 25; ++i) progress.step(step(i));
    progress.note("done");
  }
  std::istringstream lines(out.str());
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  ASSERT_EQ(all.size(), 5U);  // steps 1, 10, 20, 25 and the note
  EXPECT_THAT(all[0], EndsWith("eta: 1m12s"));
  EXPECT_THAT(all[1], HasSubstr("step: 10  loss:  2.50000"));
  EXPECT_THAT(all[1], EndsWith("eta: 45s"));
  EXPECT_THAT(all[3], EndsWith("eta: 0s"));
  EXPECT_THAT(out.str(), Not(HasSubstr("\r")));
}

TEST(ProgressLog, TimeLeftFollowsRecentSteps) {
  std::ostringstream out;
  Progress progress({.num_steps = 110, .log_freq = 100, .style = ProgressStyle::log}, out);
  for (std::int64_t i = 1; i <= 100; ++i) {
    StepReport report = step(i);
    report.step_seconds = i <= 50 ? 1000 : 2;
    progress.step(report);
  }
  EXPECT_THAT(out.str(), EndsWith("eta: 20s\n"));
}

TEST(ProgressTerminal, DrawsOneLineAnewAndKeepsNotes) {
  std::ostringstream out;
  {
    Progress progress({.num_steps = 4, .log_freq = 1, .style = ProgressStyle::terminal}, out);
    progress.step(step(1));
    progress.step(step(2));
    progress.note("validate");
    progress.step(step(4));
  }
  const std::string half = "[##########..........] 2/4  loss 2.5000  33 tokens/s  eta 6s";
  EXPECT_THAT(out.str(), HasSubstr("\r\x1b[K" + half + "\r\x1b[Kvalidate\n" + half));
  EXPECT_THAT(out.str(), EndsWith("[####################] 4/4  loss 2.5000  33 tokens/s  eta 0s\n"));
}

}  // namespace
}  // namespace echelon
