// Names, order and pruning of step folders.
#include "checkpoint/step_folders.h"

#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StepFolders, KnowsTheWholeOnesAlone) {
  const ScratchFolder scratch;
  for (const char* name : {"step-10", "step-9", "step-100.tmp", "step-11.old", "step-", "step-x", "step-12x", "step--3",
                           "step-007", "other"})
    std::filesystem::create_directory(scratch / name);
  put(scratch / "step-500", "a file");
  EXPECT_THAT(saved_steps(scratch.path()), ElementsAre(9, 10));
  EXPECT_EQ(latest_step(scratch.path()), 10);
  EXPECT_EQ(step_folder("base", 10), std::filesystem::path("base/step-10"));
  EXPECT_THAT(saved_steps(scratch / "nowhere"), IsEmpty());
  EXPECT_EQ(latest_step(scratch / "nowhere"), std::nullopt);
}

TEST(StepFolders, PruneKeepsTheLatestAndStrangers) {
  const ScratchFolder scratch;
  for (const char* name :
       {"step-2", "step-10", "step-9", "step-100.tmp", "step-11.old", "step-100.txt", "step-50", "other"}) {
    std::filesystem::create_directory(scratch / name);
    put(scratch / name / "config.json", "{}");
  }
  prune_steps(scratch.path(), 10, 2);
  EXPECT_THAT(saved_steps(scratch.path()), ElementsAre(9, 10, 50));
  for (const char* gone : {"step-2", "step-2.old", "step-100.tmp", "step-11.old"})
    EXPECT_FALSE(std::filesystem::exists(scratch / gone)) << gone;
  for (const char* kept : {"step-100.txt", "other"}) EXPECT_TRUE(std::filesystem::exists(scratch / kept)) << kept;
  prune_steps(scratch.path(), 50, 0);
  EXPECT_THAT(saved_steps(scratch.path()), ElementsAre(9, 10, 50));
  prune_steps(scratch / "nowhere", 50, 1);
}

TEST(StepFolders, PruneKeepsWhatIsNotAModel) {
  const ScratchFolder scratch;
  for (const char* name : {"step-1", "step-2", "step-3", "step-4"}) std::filesystem::create_directory(scratch / name);
  put(scratch / "step-1" / "thesis.txt", "years of work");
  for (const char* name : {"step-2", "step-3", "step-4"}) put(scratch / name / "config.json", "{}");
  put(scratch / "step-3" / "notes.md", "the best one so far");
  std::filesystem::create_directory(scratch / "step-0");
  prune_steps(scratch.path(), 4, 1);
  EXPECT_THAT(saved_steps(scratch.path()), ElementsAre(0, 1, 3, 4));
}

}  // namespace
}  // namespace echelon
