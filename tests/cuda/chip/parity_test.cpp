// Every layout of the parity grid up to eight ranks, which share one GPU or have one each, against one rank there, and that against one on a processor, in
// float64.
#include "cuda/chip/chip.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"

#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

class ChipParity : public ::testing::TestWithParam<Layout> {};

// A layout is held against one rank on the same device as closely as on processors. What that rank is off a processor's is rounding alone, for kernels add in
// other orders, and ten steps of AdamW magnify it: in the two rows that were looked at the norm of the ninth step was 1.4e-11 and 6.0e-11 off.
TEST_P(ChipParity, EqualsOneRank) {
  const RunConfig config = config_of(GetParam());
  const ProgramRuns runs = {.training = config.training.steps, .evaluation = 1};
  const auto actual = run_training(config, {.at_end = [&](const RankView& rank) { expect_locks_hold(rank, runs); }, .backend = &chip::backend()});
  const auto one_rank_there = run_training(one_rank(config), {.backend = &chip::backend()});
  expect_equal(*actual, *one_rank_there, 1e-11, 1e-9, config.optimizer.lr);
  expect_equal(*one_rank_there, *run_training(one_rank(config)), 1e-8, 1e-9, config.optimizer.lr);
}

std::string chip_test_name(const ::testing::TestParamInfo<Layout>& layout) { return name_of(layout.param); }
INSTANTIATE_TEST_SUITE_P(Grid, ChipParity, ::testing::ValuesIn(grid()), chip_test_name);
INSTANTIATE_TEST_SUITE_P(Rows, ChipParity, ::testing::ValuesIn(rows()), chip_test_name);
INSTANTIATE_TEST_SUITE_P(Schedules, ChipParity, ::testing::ValuesIn(schedule_rows()), chip_test_name);

}  // namespace
}  // namespace echelon::testing
