// Which folders of steps are checkpoints, and which of them are deleted.
#include "checkpoint/state/step_folders.h"

#include "checkpoint/state/state_names.h"
#include "checkpoint/steps_in.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace echelon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StepFolders : public ::testing::Test {
 protected:
  void save(std::int64_t step, std::int64_t attempt = 1) const {
    std::filesystem::create_directories(folder(step));
    put(folder(step) / state_file_name(attempt, 0), "numbers");
    put(folder(step) / manifest_name(attempt), "what they are");
  }
  std::filesystem::path folder(std::int64_t step) const { return step_folder(scratch_.path(), step); }

  ScratchFolder scratch_;
};

TEST_F(StepFolders, WithAManifestAreCheckpoints) {
  for (const char* name : {"step-", "step-x", "step-12x", "step--3", "step-007", "other", "step-11"})
    std::filesystem::create_directory(scratch_ / name);
  put(scratch_ / "step-500", "a file");
  save(10);
  save(9);
  EXPECT_THAT(steps_in(scratch_.path()), ElementsAre(9, 10));
  EXPECT_EQ(latest_step(scratch_.path()), 10);
  EXPECT_EQ(step_folder("base", 10), std::filesystem::path("base/step-10"));
  EXPECT_THAT(steps_in(scratch_ / "nowhere"), IsEmpty());
  EXPECT_EQ(latest_step(scratch_ / "nowhere"), std::nullopt);
}

TEST_F(StepFolders, ThatAreLinksAreForeign) {
  save(4);
  std::filesystem::create_directory_symlink(folder(4), folder(5));
  EXPECT_THAT(steps_in(scratch_.path()), ElementsAre(4));
  EXPECT_THAT(foreign_step_folders(scratch_.path()), ElementsAre(folder(5)));
}

// The next attempt would have no number.
TEST_F(StepFolders, OfTheLargestAttemptOfAllAreNoCheckpoints) {
  save(4, std::numeric_limits<std::int64_t>::max());
  EXPECT_THAT(steps_in(scratch_.path()), IsEmpty());
  EXPECT_EQ(highest_attempt(scratch_.path()), 0);
  EXPECT_THAT(foreign_step_folders(scratch_.path()), ElementsAre(folder(4)));
}

TEST_F(StepFolders, OfALaterAttemptAreNewer) {
  save(5);
  save(10);
  save(15);
  save(7, 2);
  EXPECT_THAT(steps_in(scratch_.path()), ElementsAre(5, 10, 15, 7));
  EXPECT_EQ(latest_step(scratch_.path()), 7);
  EXPECT_EQ(highest_attempt(scratch_.path()), 2);
  save(10, 3);
  EXPECT_EQ(saved_steps(scratch_.path()).back(), (SavedStep{3, 10}));
}

TEST_F(StepFolders, PruneKeepsTheLatestAndMultiplesAndStrangers) {
  for (const std::int64_t step : {2, 3, 6, 9, 10, 50}) save(step);
  put(folder(2) / "thesis.txt", "years of work");
  std::filesystem::create_directory(folder(1));
  put(folder(1) / "notes.md", "no checkpoint");
  prune_steps(scratch_.path(), 10, {.latest = 2, .every = 6});
  EXPECT_THAT(steps_in(scratch_.path()), ElementsAre(2, 6, 9, 10, 50));
  EXPECT_TRUE(std::filesystem::exists(folder(1) / "notes.md"));
  prune_steps(scratch_.path(), 50, {});
  EXPECT_THAT(steps_in(scratch_.path()), ElementsAre(2, 6, 9, 10, 50));
  prune_steps(scratch_ / "nowhere", 50, {.latest = 1});
}

TEST_F(StepFolders, PruneNeitherCountsNorDeletesWhatIsDamaged) {
  for (const std::int64_t step : {1, 2, 3, 4}) save(step);
  prune_steps(scratch_.path(), 4, {.latest = 2}, {3});
  EXPECT_THAT(steps_in(scratch_.path()), ElementsAre(2, 3, 4));
}

TEST_F(StepFolders, LitterIsWhatNoManifestNames) {
  save(1);
  std::filesystem::create_directory(folder(2));
  put(folder(2) / state_file_name(3, 7), "half of it");
  put(folder(2) / (manifest_name(3) + ".tmp"), "half of it");
  std::filesystem::create_directory(folder(3));
  save(4);
  save(4, 2);
  put(folder(4) / state_file_name(3, 0), "of an attempt after that");
  std::filesystem::create_directory(folder(5));
  put(folder(5) / "notes.md", "of a person");
  EXPECT_THAT(foreign_step_folders(scratch_.path()), ElementsAre(folder(5)));
  remove_litter(scratch_.path());
  EXPECT_THAT(steps_in(scratch_.path()), ElementsAre(1, 4));
  EXPECT_FALSE(std::filesystem::exists(folder(2)));
  EXPECT_FALSE(std::filesystem::exists(folder(3)));
  EXPECT_FALSE(std::filesystem::exists(folder(4) / state_file_name(1, 0)));
  EXPECT_TRUE(std::filesystem::exists(folder(4) / state_file_name(2, 0)));
  EXPECT_FALSE(std::filesystem::exists(folder(4) / state_file_name(3, 0)));
  EXPECT_TRUE(std::filesystem::exists(folder(5) / "notes.md"));
}

}  // namespace
}  // namespace echelon
