// A sweep over layouts that mixes every axis with every other: each row equals one rank, and the locks hold.
#include "parity/sweep/sweep.h"
#include "base/clock.h"
#include "engine/types/layout_types.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "spec/config/config_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

namespace echelon::testing {
namespace {

const SweepTable& table = sweep_table();

TEST(SweepRows, EveryAllowedPairOccursThreeTimes) {
  const std::map<Pair, int> times = occurrences(all_rows());
  for (const Pair& pair : allowed_pairs(table)) {
    const auto found = times.find(pair);
    EXPECT_GE(found == times.end() ? 0 : found->second, times_each_pair) << name_of(table, pair);
  }
}

TEST(SweepRows, AreManyAndOnEveryNumberOfRanks) {
  EXPECT_GE(all_rows().size(), 200U);
  std::set<int> worlds;
  for (const SweepRow& row : all_rows()) {
    EXPECT_EQ(run_of(row).config.mesh_shape().num_ranks(), row.world_size);
    worlds.insert(row.world_size);
  }
  for (int world = 1; world <= largest_world; ++world) EXPECT_TRUE(worlds.contains(world)) << world << " ranks";
}

std::string how_to_repeat(std::size_t row, const RunConfig& config) {
  return fmt::format("row {} of seed {}:\n{}\n{}", row, sweep_seed(), describe(table, all_rows()[row]),
                     to_toml(config));
}

// All rows, also where only some of them are run: no row is left out for being refused, and none has types that do not
// fit.
TEST(SweepRows, AreAcceptedPlannedAndOfFittingTypes) {
  for (std::size_t row = 0; row < all_rows().size(); ++row) {
    const RunConfig config = run_of(all_rows()[row]).config;
    try {
      const Blueprint blueprint(config);
      for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation})
        EXPECT_EQ(check(blueprint.programs(kind), blueprint.schedule(), blueprint.lowering(kind)),
                  std::vector<std::string>())
            << how_to_repeat(row, config);
      check_layout_types(blueprint);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << "\n" << how_to_repeat(row, config);
    }
  }
}

/// The same model and batches on one rank in one microbatch, run once for all rows that are compared with it.
const Trajectory& one_rank_of(const SweepRun& run) {
  static std::map<std::string, std::unique_ptr<Trajectory>> known;
  RunConfig config = one_rank(run.config);
  config.training.micro_batch_size = config.training.global_batch_size;
  config.training.mlp_chunk_tokens = 0;
  config.training.recompute = {};
  config.training.recompute_method = RecomputeMethod::uniform;
  auto& trajectory = known[fmt::format("{} {}", to_toml(config), static_cast<int>(run.targets))];
  if (!trajectory) trajectory = run_training(config, {.targets = run.targets});
  return *trajectory;
}

struct Worst {
  double error = 0;
  std::string where;
  void meet(const Difference& difference, std::size_t row) {
    if (!(difference.error <= error)) *this = {difference.error, fmt::format("{}, row {}", difference.name, row)};
  }
};

// Claim (parity): 278 layouts, drawn from a seed, mix all axes on 1 to 16 ranks; every allowed
//   pair of settings of two axes occurs at least three times, also with operations that complete
//   late.
// Bound: parity's bounds.
// Tests: Sweep
// Run: ECHELON_SWEEP=long build/release/test_sweep    # all of them
class Sweep : public ::testing::TestWithParam<std::size_t> {
 protected:
  static inline Worst loss, grad_norm, gradient, weight;
  static inline int num_rows = 0;
  static inline double begin = 0;

  static void SetUpTestSuite() { begin = now_seconds(); }
  static void TearDownTestSuite() {
    fmt::print(
        "{} of {} rows of seed {}, {:.0f} s; worst errors: loss {:.1e} ({}), gradient norm {:.1e} ({}), gradient "
        "{:.1e} ({}), weight {:.1e} ({})\n",
        num_rows, all_rows().size(), sweep_seed(), now_seconds() - begin, loss.error, loss.where, grad_norm.error,
        grad_norm.where, gradient.error, gradient.where, weight.error, weight.where);
  }
};

TEST_P(Sweep, EqualsOneRank) {
  const SweepRun run = run_of(all_rows()[GetParam()]);
  SCOPED_TRACE(how_to_repeat(GetParam(), run.config));
  const auto at_end = [&](const RankView& rank) {
    expect_locks_hold(rank, {.training = run.config.training.steps, .evaluation = 1});
  };
  const auto actual = run_training(run.config, {.at_end = at_end, .targets = run.targets});
  expect_equal(*actual, one_rank_of(run), scalar_tolerance, tensor_tolerance, run.config.optimizer.lr);
  const Errors errors = errors_of(*actual, one_rank_of(run), run.config.optimizer.lr);
  ++num_rows;
  loss.meet(errors.loss, GetParam());
  grad_norm.meet(errors.grad_norm, GetParam());
  gradient.meet(errors.gradient, GetParam());
  weight.meet(errors.weight, GetParam());
}

// A missing wait anywhere shows in the numbers.
TEST_P(Sweep, EqualsOneRankWithLateResults) {
  const SweepRun run = run_of(all_rows()[GetParam()]);
  SCOPED_TRACE(how_to_repeat(GetParam(), run.config));
  const auto actual = run_training(run.config, {.interpose = delayed, .targets = run.targets});
  expect_equal(*actual, one_rank_of(run), scalar_tolerance, tensor_tolerance, run.config.optimizer.lr);
}

// What the comparison would say of a run on which other targets count: every kind of number differs.
TEST(SweepRows, DifferInEveryNumberFromAnotherRun) {
  SweepRun run = run_of(all_rows().front());
  run.targets = Targets::all;
  const auto other = run_training(run.config, {.targets = Targets::unequal});
  const Errors errors = errors_of(*other, one_rank_of(run), run.config.optimizer.lr);
  EXPECT_GT(errors.loss.error, scalar_tolerance);
  EXPECT_GT(errors.grad_norm.error, scalar_tolerance);
  EXPECT_GT(errors.gradient.error, tensor_tolerance);
  EXPECT_GT(errors.weight.error, tensor_tolerance);
}

std::vector<std::size_t> rows_to_run() {
  std::vector<std::size_t> rows;
  if (is_long_sweep()) {
    for (std::size_t row = 0; row < all_rows().size(); ++row) rows.push_back(row);
    return rows;
  }
  return rows_with_every_setting(table, all_rows());
}

INSTANTIATE_TEST_SUITE_P(Rows, Sweep, ::testing::ValuesIn(rows_to_run()),
                         [](const auto& row) { return fmt::format("{:03}", row.param); });

}  // namespace
}  // namespace echelon::testing
