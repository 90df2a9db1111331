// ZeRO-3 that gathers units further ahead computes the same bits: only when parameters arrive differs.
#include "parity/layout.h"
#include "parity/training_run.h"

#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

class Prefetch : public ::testing::TestWithParam<Layout> {};

TEST_P(Prefetch, OfAnyDepthGivesTheSameBits) {
  Layout layout = GetParam();
  const auto one = run_training(config_of(layout));
  const std::int64_t num_units = config_of(layout).model.num_hidden_layers + 2;
  for (const std::int64_t depth : {std::int64_t{2}, std::int64_t{3}, num_units}) {
    layout.prefetch = static_cast<int>(depth);
    const auto further = run_training(config_of(layout), {.interpose = delayed});
    EXPECT_EQ(further->losses, one->losses) << depth;
    EXPECT_EQ(further->grad_norms, one->grad_norms) << depth;
    EXPECT_EQ(further->validation_loss, one->validation_loss) << depth;
    EXPECT_EQ(worst_difference(further->first_gradients, one->first_gradients, 1).error, 0) << depth;
    EXPECT_EQ(worst_difference(further->values, one->values, 1).error, 0) << depth;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Prefetch,
    ::testing::Values(Layout{.shard = 2, .zero = 3, .layers = 4}, Layout{.shard = 3, .tied = true, .zero = 3},
                      Layout{.replicate = 2, .shard = 2, .tp = 2, .sequence_parallel = true, .zero = 3, .layers = 3},
                      Layout{.shard = 2, .zero = 3, .reshard = ReshardAfterForward::never, .layers = 4},
                      Layout{.shard = 2, .zero = 3, .reshard = ReshardAfterForward::step, .layers = 4},
                      Layout{.shard = 2, .pp = 2, .microbatches = 3, .tied = true, .zero = 3, .layers = 5},
                      Layout{.shard = 2,
                             .pp = 2,
                             .schedule = PipelineSchedule::zb_v,
                             .microbatches = 4,
                             .tied = true,
                             .zero = 3,
                             .layers = 8},
                      Layout{.shard = 2, .zero = 3, .layers = 3, .experts = 4}),
    [](const auto& each) { return name_of(each.param); });

}  // namespace
}  // namespace echelon::testing
