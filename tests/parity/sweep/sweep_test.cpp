// Sweeps over layouts that mix every axis with every other: each row equals one rank, and the locks hold.
#include "parity/sweep/sweep.h"
#include "base/clock.h"
#include "blueprint/traffic/transfer_check.h"
#include "engine/types/layout_types.h"
#include "parity/choice_gaps.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/router_choices.h"
#include "spec/config/config_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

namespace echelon::testing {
namespace {

class SweepRows : public ::testing::TestWithParam<const SweepTable*> {
 protected:
  [[nodiscard]] static const SweepTable& table() { return *GetParam(); }
  [[nodiscard]] static const std::vector<SweepRow>& rows() { return all_rows(table()); }
};

TEST_P(SweepRows, EveryAllowedPairOccursThreeTimes) {
  const std::map<Pair, int> times = occurrences(rows());
  for (const Pair& pair : allowed_pairs(table())) {
    const auto found = times.find(pair);
    EXPECT_GE(found == times.end() ? 0 : found->second, times_each_pair) << name_of(table(), pair);
  }
}

// A pair that the table leaves out although a row could have it would be tested nowhere.
TEST_P(SweepRows, HaveNoPairThatFollowsToBeImpossible) {
  SweepTable others = table();
  std::erase_if(others.rules, [](const Rule& rule) { return rule.follows; });
  const std::vector<Pair> allowed = allowed_pairs(table());
  for (const auto& [pair, times] : occurrences(draw_rows(others, sweep_seed(), 1)))
    EXPECT_TRUE(std::ranges::find(allowed, pair) != allowed.end()) << name_of(table(), pair);
}

TEST_P(SweepRows, AreManyAndOnEveryNumberOfRanks) {
  EXPECT_GE(rows().size(), 240U);
  std::set<int> worlds;
  for (const SweepRow& row : rows()) {
    EXPECT_EQ(run_of(table(), row).config.mesh_shape().num_ranks(), row.world_size);
    worlds.insert(row.world_size);
  }
  for (int world = 1; world <= largest_world; ++world) EXPECT_TRUE(worlds.contains(world)) << world << " ranks";
}

TEST_P(SweepRows, OfTheShortFormHaveEverySetting) {
  std::set<Place> seen;
  for (const std::size_t row : rows_with_every_setting(table(), rows()))
    for (std::size_t axis = 0; axis < table().axes.size(); ++axis) seen.insert({axis, rows()[row].settings[axis]});
  for (std::size_t axis = 0; axis < table().axes.size(); ++axis)
    for (std::size_t setting = 0; setting < table().axes[axis].settings.size(); ++setting)
      EXPECT_TRUE(seen.contains({axis, setting}))
          << table().axes[axis].name << " = " << table().axes[axis].settings[setting].name;
}

std::string how_to_repeat(const SweepTable& table, std::size_t row, const RunConfig& config) {
  return fmt::format("row {} of {} of seed {}:\n{}\n{}", row, table.name, sweep_seed(),
                     describe(table, all_rows(table)[row]), to_toml(config));
}

// All rows, also where only some of them are run: no row is left out for being refused, and none has types that do not
// fit.
TEST_P(SweepRows, AreAcceptedPlannedAndOfFittingTypes) {
  for (std::size_t row = 0; row < rows().size(); ++row) {
    const RunConfig config = run_of(table(), rows()[row]).config;
    try {
      const Blueprint blueprint(config);
      for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation})
        EXPECT_EQ(check(blueprint.programs(kind), blueprint.schedule(), blueprint.lowering(kind)),
                  std::vector<std::string>())
            << how_to_repeat(table(), row, config);
      EXPECT_EQ(check_transfers(blueprint), std::vector<std::string>()) << how_to_repeat(table(), row, config);
      check_layout_types(blueprint);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << "\n" << how_to_repeat(table(), row, config);
    }
  }
}

/// One rank, and what its tokens chose.
struct Baseline {
  std::unique_ptr<Trajectory> trajectory;
  std::unique_ptr<RouterChoices> choices;
};

/// The same model and batches on one rank in one microbatch, run once for all rows that are compared with it.
const Baseline& one_rank_of(const SweepRun& run) {
  static std::map<std::string, Baseline> known;
  const RunConfig config = baseline_of(run.config);
  Baseline& baseline = known[fmt::format("{} {}", to_toml(config), static_cast<int>(run.targets))];
  if (baseline.trajectory) return baseline;
  baseline.trajectory = run_training(config, {.targets = run.targets});
  if (config.model.mixture.exists()) baseline.choices = std::make_unique<RouterChoices>(config, run.targets);
  return baseline;
}

struct Worst {
  double error = 0;
  std::string where;
  void meet(const Difference& difference, std::size_t row) {
    if (!(difference.error <= error)) *this = {difference.error, fmt::format("{}, row {}", difference.name, row)};
  }
};

struct RowOfTable {
  const SweepTable* table;
  std::size_t row;
};

class Sweep : public ::testing::TestWithParam<RowOfTable> {
 protected:
  static inline Worst loss, grad_norm, gradient, weight;
  static inline int num_rows = 0;
  static inline std::int64_t num_choices = 0;
  static inline ChoiceGaps gaps;
  static inline double begin = 0;

  static void SetUpTestSuite() {
    loss = grad_norm = gradient = weight = {};
    num_rows = 0, num_choices = 0, gaps = {};
    begin = now_seconds();
  }
  static void TearDownTestSuite() {
    fmt::print(
        "{} rows of seed {}, {:.0f} s; worst errors: loss {:.1e} ({}), gradient norm {:.1e} ({}), gradient {:.1e} "
        "({}), weight {:.1e} ({}); {} equal choices of experts, smallest gaps: {}\n",
        num_rows, sweep_seed(), now_seconds() - begin, loss.error, loss.where, grad_norm.error, grad_norm.where,
        gradient.error, gradient.where, weight.error, weight.where, num_choices, text_of(gaps));
  }

  [[nodiscard]] static SweepRun run() { return run_of(*GetParam().table, all_rows(*GetParam().table)[GetParam().row]); }
  [[nodiscard]] static std::string how_to_repeat() {
    return echelon::testing::how_to_repeat(*GetParam().table, GetParam().row, run().config);
  }
};

// Claim (parity): 271 layouts and 363 of mixtures, drawn from a seed, mix all axes on 1 to 16 ranks;
//   every allowed pair of settings occurs three times, also with operations that complete late.
// Bound: parity's bounds.
// Tests: Sweep
// Run: ECHELON_SWEEP=long build/release/test_sweep    # all of them
TEST_P(Sweep, EqualsOneRank) {
  const SweepRun drawn = run();
  SCOPED_TRACE(how_to_repeat());
  const Baseline& expected = one_rank_of(drawn);
  if (expected.choices) {
    const RouterChoices choices(drawn.config, drawn.targets);
    num_choices += expect_equal_choices(choices.recorded(), expected.choices->recorded(), drawn.config);
    ASSERT_FALSE(HasFailure()) << "other choices explain every difference after them";
    const ChoiceGaps of_row = gaps_of(choices.recorded(), expected.choices->recorded(), drawn.config);
    expect_clear(of_row);
    gaps.meet(of_row);
  }
  const auto at_end = [&](const RankView& rank) {
    expect_locks_hold(rank, {.training = drawn.config.training.steps, .evaluation = 1});
  };
  const auto actual = run_training(drawn.config, {.at_end = at_end, .targets = drawn.targets});
  EXPECT_FALSE(HasFailure()) << "on a rank, whose thread does not know the row";
  expect_equal(*actual, *expected.trajectory, scalar_tolerance, tensor_tolerance, drawn.config.optimizer.lr);
  const Errors errors = errors_of(*actual, *expected.trajectory, drawn.config.optimizer.lr);
  ++num_rows;
  loss.meet(errors.loss, GetParam().row);
  grad_norm.meet(errors.grad_norm, GetParam().row);
  gradient.meet(errors.gradient, GetParam().row);
  weight.meet(errors.weight, GetParam().row);
}

// A missing wait anywhere shows in the numbers.
TEST_P(Sweep, EqualsOneRankWithLateResults) {
  const SweepRun drawn = run();
  SCOPED_TRACE(how_to_repeat());
  const auto actual = run_training(drawn.config, {.interpose = delayed, .targets = drawn.targets});
  expect_equal(*actual, *one_rank_of(drawn).trajectory, scalar_tolerance, tensor_tolerance, drawn.config.optimizer.lr);
}

// What the comparison would say of a run on which other targets count: every kind of number differs.
TEST_P(SweepRows, DifferInEveryNumberFromAnotherRun) {
  SweepRun run = run_of(table(), rows().front());
  run.targets = Targets::all;
  const auto other = run_training(run.config, {.targets = Targets::unequal});
  const Errors errors = errors_of(*other, *one_rank_of(run).trajectory, run.config.optimizer.lr);
  EXPECT_GT(errors.loss.error, scalar_tolerance);
  EXPECT_GT(errors.grad_norm.error, scalar_tolerance);
  EXPECT_GT(errors.gradient.error, tensor_tolerance);
  EXPECT_GT(errors.weight.error, tensor_tolerance);
}

std::vector<RowOfTable> rows_to_run(const SweepTable& table) {
  std::vector<RowOfTable> rows;
  if (is_long_sweep())
    for (std::size_t row = 0; row < all_rows(table).size(); ++row) rows.push_back({&table, row});
  else
    for (const std::size_t row : rows_with_every_setting(table, all_rows(table))) rows.push_back({&table, row});
  return rows;
}

std::string name_of_row(const ::testing::TestParamInfo<RowOfTable>& row) { return fmt::format("{:03}", row.param.row); }

INSTANTIATE_TEST_SUITE_P(Layouts, SweepRows, ::testing::Values(&sweep_table()));
INSTANTIATE_TEST_SUITE_P(Mixtures, SweepRows, ::testing::Values(&mixture_table()));
INSTANTIATE_TEST_SUITE_P(Layouts, Sweep, ::testing::ValuesIn(rows_to_run(sweep_table())), name_of_row);
// The same with the axes of experts: every token chooses what it chooses on one rank, and parity's bounds hold.
INSTANTIATE_TEST_SUITE_P(Mixtures, Sweep, ::testing::ValuesIn(rows_to_run(mixture_table())), name_of_row);

}  // namespace
}  // namespace echelon::testing
