// Every layout of the parity grid up to eight ranks, which share one GPU or have one each, against one rank on a processor, in float64.
#include "cuda/chip/chip.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"

#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

class ChipParity : public ::testing::TestWithParam<Layout> {};

// Kernels add in other orders than a processor, and ten steps of AdamW magnify what that rounds: of one row the norm of the gradients is 2e-16 off in the first
// step, 2e-12 in the fourth and 1.4e-11 in the ninth.
constexpr double scalar_tolerance = 1e-10, tensor_tolerance = 1e-9;

TEST_P(ChipParity, EqualsOneProcessor) {
  const RunConfig config = config_of(GetParam());
  const ProgramRuns runs = {.training = config.training.steps, .evaluation = 1};
  const auto actual = run_training(config, {.at_end = [&](const RankView& rank) { expect_locks_hold(rank, runs); }, .backend = &chip::backend()});
  expect_equal(*actual, *run_training(one_rank(config)), scalar_tolerance, tensor_tolerance, config.optimizer.lr);
}

std::string chip_test_name(const ::testing::TestParamInfo<Layout>& layout) { return name_of(layout.param); }
INSTANTIATE_TEST_SUITE_P(Grid, ChipParity, ::testing::ValuesIn(grid()), chip_test_name);
INSTANTIATE_TEST_SUITE_P(Rows, ChipParity, ::testing::ValuesIn(rows()), chip_test_name);
INSTANTIATE_TEST_SUITE_P(Schedules, ChipParity, ::testing::ValuesIn(schedule_rows()), chip_test_name);

}  // namespace
}  // namespace echelon::testing
