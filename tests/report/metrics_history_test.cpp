#include "report/metrics_history.h"

#include "base/error.h"
#include "scratch_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <vector>

namespace echelon {
namespace {

std::string step(int number, double loss) {
  return "{\"step\":" + std::to_string(number) + ",\"loss\":" + std::to_string(loss) + ",\"grad_norm\":1}\n";
}
std::string evaluation(int number, double loss) {
  return "{\"step\":" + std::to_string(number) + ",\"validation_loss\":" + std::to_string(loss) + "}\n";
}
std::string resumed(int number) { return "{\"resumed_from\":" + std::to_string(number) + ",\"checkpoint\":\"x\"}\n"; }

MetricsHistory history_of(const std::string& text) {
  const auto path = std::filesystem::path(scratch_folder()) / "metrics_history_test.jsonl";
  std::ofstream(path) << text;
  return read_metrics(path);
}

std::vector<double> losses(const MetricsHistory& history) {
  std::vector<double> values;
  for (const MetricsHistory::Line& line : history.lines) values.push_back(line.loss);
  return values;
}

TEST(MetricsHistory, TheLaterOnesOfRepeatedStepsCount) {
  const MetricsHistory history = history_of(step(1, 9) + step(2, 8) + evaluation(2, 8.5) + step(3, 7) +
                                            evaluation(3, 7.5) + resumed(2) + step(3, 6) + evaluation(3, 6.5));
  EXPECT_EQ(losses(history), (std::vector<double>{9, 8, 8.5, 6, 6.5}));
  EXPECT_EQ(history.num_resumed, 1);
  EXPECT_EQ(history.num_repeated, 2);
  EXPECT_EQ(history.lines.back().text + "\n", evaluation(3, 6.5));
}

TEST(MetricsHistory, ARunThatStartsAgainWithoutACheckpointReplacesAll) {
  EXPECT_EQ(losses(history_of(step(1, 9) + step(2, 8) + evaluation(2, 8) + step(1, 5) + step(2, 4))),
            (std::vector<double>{5, 4}));
}

TEST(MetricsHistory, StepsThatWereLostWithTheirLinesHarmNothing) {
  // It was killed after step 4, of which the disk never had the line, and resumed from it.
  EXPECT_EQ(losses(history_of(step(1, 9) + step(2, 8) + resumed(4) + step(5, 5))), (std::vector<double>{9, 8, 5}));
}

TEST(MetricsHistory, CutOffLinesAreSkippedAndCounted) {
  const MetricsHistory history = history_of(step(1, 9) + "{\"step\":2,\"lo\n" + resumed(1) + step(2, 8) + "{\"st");
  EXPECT_EQ(losses(history), (std::vector<double>{9, 8}));
  EXPECT_EQ(history.num_unreadable, 2);
}

TEST(MetricsHistory, OtherLinesAreSkipped) {
  const MetricsHistory history = history_of("\n[]\n3\n{\"note\":1}\n{\"step\":\"x\",\"loss\":1}\n{\"step\":1}\n" +
                                            step(1, 9) + "{\"step\":2,\"loss\":null}\n");
  ASSERT_EQ(history.lines.size(), 2U);
  EXPECT_TRUE(std::isnan(history.lines[1].loss));
}

TEST(MetricsHistory, IsSummarized) {
  EXPECT_EQ(to_text(history_of(step(1, 9) + step(2, 8) + resumed(1) + step(2, 7) + evaluation(2, 7.25))),
            "steps 1 to 2, 1 resume; left out: 1 line of repeated steps, 0 that are cut off\n"
            "training loss: 9.00000 at first, 7.00000 at last\n"
            "validation loss: 7.25000 after step 2\n");
  EXPECT_EQ(to_text(history_of("")), "no steps, 0 resumes; left out: 0 lines of repeated steps, 0 that are cut off\n");
  EXPECT_THROW((void)read_metrics("/dev/null/metrics.jsonl"), Error);
}

}  // namespace
}  // namespace echelon
