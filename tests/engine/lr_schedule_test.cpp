#include "engine/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace echelon {
namespace {

RunConfig config_with(LrDecay decay) {
  RunConfig config;
  config.training.steps = 110;
  config.optimizer.lr = 2.0;
  config.lr_scheduler = {.warmup_steps = 10, .decay = decay, .min_lr_factor = 0.1, .decay_ratio = 0.2};
  return config;
}

TEST(LrSchedule, WarmsUpLinearly) {
  for (const LrDecay decay : {LrDecay::none, LrDecay::cosine, LrDecay::linear, LrDecay::wsd}) {
    EXPECT_DOUBLE_EQ(learning_rate(config_with(decay), 1), 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(config_with(decay), 5), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(config_with(decay), 10), 2.0);
  }
}

// 100 steps of decay from 2 to 0.2, of which the last one is 1 / 100 away from its end.
TEST(LrSchedule, WouldHaveTheLeastFactorAfterTheLastStep) {
  EXPECT_DOUBLE_EQ(learning_rate(config_with(LrDecay::none), 110), 2.0);
  for (const LrDecay decay : {LrDecay::cosine, LrDecay::linear, LrDecay::wsd})
    EXPECT_NEAR(learning_rate(config_with(decay), 111), 0.2, 1e-12);
  EXPECT_NEAR(learning_rate(config_with(LrDecay::linear), 110), 0.2 + 1.8 * 0.01, 1e-12);
}

// torchtitan's linear_warmup_stable_decay, whose stable part has one step more than is left for it: with warm-up steps
// 0 and decay over all of 4 steps, rates of 1, 3/4, 1/2, 1/4.
TEST(LrSchedule, ChangesWeightsInEveryStep) {
  RunConfig config;
  config.training.steps = 4;
  config.optimizer.lr = 1.0;
  config.lr_scheduler = {.warmup_steps = 0, .decay = LrDecay::linear, .min_lr_factor = 0};
  for (std::int64_t step = 1; step <= 4; ++step)
    EXPECT_DOUBLE_EQ(learning_rate(config, step), 1.25 - 0.25 * static_cast<double>(step));
  config.training.steps = 1;
  for (const LrDecay decay : {LrDecay::cosine, LrDecay::linear, LrDecay::wsd}) {
    config.lr_scheduler.decay = decay;
    EXPECT_DOUBLE_EQ(learning_rate(config, 1), 1.0);
  }
}

TEST(LrSchedule, HasTheShapeOfItsName) {
  EXPECT_NEAR(learning_rate(config_with(LrDecay::cosine), 61), 0.5 * (2.0 + 0.2), 1e-12);
  EXPECT_NEAR(learning_rate(config_with(LrDecay::cosine), 36), 0.2 + 1.8 * 0.5 * (1 + std::cos(std::acos(-1.0) / 4)),
              1e-12);
  EXPECT_NEAR(learning_rate(config_with(LrDecay::linear), 36), 0.2 + 1.8 * 0.75, 1e-12);
  EXPECT_NEAR(learning_rate(config_with(LrDecay::wsd), 91), 2.0, 1e-12);   // stable until the last fifth
  EXPECT_NEAR(learning_rate(config_with(LrDecay::wsd), 101), 1.1, 1e-12);  // half of it is gone
}

TEST(LrSchedule, WithoutWarmUpTheFirstStepIsFull) {
  RunConfig config = config_with(LrDecay::none);
  config.lr_scheduler.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(config, 1), 2.0);
}

}  // namespace
}  // namespace echelon
