// Checkpoints of earlier formats: each one that was released is read for good.
#include "resume/small_run.h"

#include "checkpoint/state/saved_config.h"
#include "tree/tree.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace echelon::testing {
namespace {

using ResumeFixtures = SmallRun;

TEST_F(ResumeFixtures, OfEachFormatAreReadAndResumed) {
  int num_formats = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ECHELON_SOURCE_DIR "/tests/resume/fixtures")) {
    SCOPED_TRACE(entry.path());
    ++num_formats;
    const std::filesystem::path step = entry.path() / "step-2";
    const StateReader reader(step);
    reader.verify();
    EXPECT_EQ(reader.manifest().scalars.step, 2);
    RunConfig config = config_of(reader.manifest(), step);
    config.data.path = (entry.path() / "data").string();
    config.output.dir = output(entry.path().filename()).string();
    config.checkpoint.load = step.string();
    const Steps steps = run(config);
    const auto losses = nlohmann::json::parse(tree::read_text(entry.path() / "losses.json"));
    ASSERT_EQ(steps.losses.size(), losses.size());
    // Another processor rounds float16 in another order.
    for (const auto& [number, loss] : steps.losses)
      EXPECT_NEAR(loss, losses.at(std::to_string(number)).get<double>(), 2e-3 * loss) << number;
  }
  EXPECT_EQ(num_formats, 1);
}

}  // namespace
}  // namespace echelon::testing
