// Any schedule equals one rank: passes of several stages a rank in any order that data allows, with weight gradients at
// once or later.
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"
#include "schedule/draw/torch_csv.h"
#include "schedule/random_schedule.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace echelon::testing {
namespace {

struct RandomRun {
  Layout layout;
  RandomScheduleOptions order;
};

// Layouts in turns: data parallel, sharded at each level, tensor parallel with and without sequence parallelism, tied
// and untied, uneven stages.
RandomRun random_run(unsigned seed) {
  RandomRun run;
  run.order = {.num_ranks = 1 + static_cast<int>(seed % 4),
               .num_virtual = 1 + static_cast<int>(seed / 4 % 3),
               .num_microbatches = 1 + static_cast<int>(seed % 5),
               .seed = seed};
  run.layout = {.pp = run.order.num_ranks, .microbatches = run.order.num_microbatches, .tied = seed % 2 == 0};
  run.layout.layers = run.order.num_ranks * run.order.num_virtual + static_cast<int>(seed % 3);
  if (seed % 3 == 0) run.layout.shard = 2, run.layout.zero = 1 + static_cast<int>(seed / 3 % 3);
  if (seed % 3 == 1) run.layout.tp = 2;
  if (seed % 9 == 2) run.layout.replicate = 2;
  run.layout.sequence_parallel = seed % 6 == 1;
  run.layout.family = static_cast<Family>(seed % 4);
  return run;
}

// Claim (schedules): Any order of passes that the data allows, of one to three stages a rank,
//   computes what one rank computes, with operations that complete in time or late.
// Bound: 24 random schedules: parity's bounds.
// Tests: AnySchedule
class AnySchedule : public ::testing::TestWithParam<unsigned> {
 protected:
  RandomRun random = random_run(GetParam());
  RunConfig config = config_of(random.layout);
  Schedule schedule = random_schedule(random.order);
  AnySchedule() { config.training.steps = 3; }
};

TEST_P(AnySchedule, EqualsOneRank) {
  const Blueprint blueprint(config, schedule);
  for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation})
    EXPECT_EQ(check(blueprint.programs(kind), blueprint.schedule(), blueprint.lowering(kind)),
              std::vector<std::string>());
  const auto actual = run_training(
      config,
      {.at_end =
           [&](const RankView& rank) { expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1}); },
       .schedule = schedule});
  expect_equal(*actual, *run_training(one_rank(config)), 1e-11, 1e-9, config.optimizer.lr);
}

TEST_P(AnySchedule, EqualsOneRankWithLateResults) {
  const auto actual = run_training(config, {.interpose = delayed, .schedule = schedule});
  expect_equal(*actual, *run_training(one_rank(config)), 1e-11, 1e-9, config.optimizer.lr);
}

// Files that PyTorch has written (tests/schedule/torch_csv), through the config.
TEST(TorchSchedules, EqualOneRank) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ECHELON_SOURCE_DIR "/tests/schedule/torch_csv")) {
    // The one that misses a pass.
    if (entry.path().extension() != ".csv" || entry.path().stem() == "1F1B-4-8-1") continue;
    SCOPED_TRACE(entry.path().filename());
    std::ifstream file(entry.path());
    const Schedule schedule = read_torch_csv(std::string(std::istreambuf_iterator<char>(file), {}), entry.path());
    RunConfig config = config_of({.pp = static_cast<int>(schedule.ranks.size()),
                                  .microbatches = schedule.num_microbatches,
                                  .tied = num_files % 2 == 0});
    config.model.num_hidden_layers = schedule.num_stages;
    config.parallelism.pipeline_parallel_schedule_csv = entry.path();
    config.training.steps = 3;
    EXPECT_EQ(Blueprint(config).schedule().ranks, schedule.ranks);
    const auto actual = run_training(
        config, {.at_end = [](const RankView& rank) { expect_locks_hold(rank, {.training = 3, .evaluation = 1}); }});
    expect_equal(*actual, *run_training(one_rank(config)), 1e-11, 1e-9, config.optimizer.lr);
    ++num_files;
  }
  EXPECT_GE(num_files, 19);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnySchedule, ::testing::Range(0U, 24U));

}  // namespace
}  // namespace echelon::testing
