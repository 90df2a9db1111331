// The scale against PyTorch's GradScaler, step by step, and when there is none.
#include "engine/loss_scaler.h"

#include "base/error.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

RunConfig float16_run(const GradScalerConfig& scaler) {
  RunConfig config;
  config.training.dtype = DType::float16;
  config.grad_scaler = scaler;
  return config;
}

// torch.amp.GradScaler(init_scale=8, growth_factor=4, backoff_factor=0.5, growth_interval=2): get_scale() after each
// update(), where 'o' found an inf.
TEST(LossScaler, FollowsPyTorchsRule) {
  LossScaler scaler(float16_run({.init_scale = 8, .growth_factor = 4, .backoff_factor = 0.5, .growth_interval = 2}));
  EXPECT_EQ(scaler.scale(), 8);
  const std::pair<char, double> steps[] = {{'.', 8}, {'.', 32}, {'.', 32}, {'o', 16}, {'.', 16}, {'o', 8},
                                           {'o', 4}, {'.', 4},  {'.', 16}, {'.', 16}, {'.', 64}};
  for (const auto& [outcome, scale] : steps) {
    scaler.ended_step({.is_skipped = outcome == 'o'});
    EXPECT_EQ(scaler.scale(), scale);
  }
  EXPECT_EQ(scaler.num_skipped(), 3);
}

TEST(LossScaler, StaysWithinFloat32AndEndsARunThatOverflowsWithoutAScale) {
  LossScaler large(float16_run({.init_scale = 1e30, .growth_factor = 1e5, .growth_interval = 1}));
  for (int step = 0; step < 3; ++step) large.ended_step({});
  EXPECT_EQ(large.scale(), 1e35);

  LossScaler small(float16_run({.init_scale = 2}));
  small.ended_step({.is_skipped = true});
  EXPECT_EQ(small.scale(), 1);
  EXPECT_THROW(small.ended_step({.is_skipped = true}), Failure);
}

TEST(LossScaler, IsForFloat16Alone) {
  LossScaler scaler((RunConfig()));
  scaler.ended_step({});
  EXPECT_EQ(scaler.scale(), std::nullopt);
  EXPECT_EQ(scaler.num_skipped(), 0);
}

}  // namespace
}  // namespace echelon
