// Linear layers in float8: layouts equal one rank as far as numbers that are tiny beside the largest of a rank's part
// let them, and losses follow float32's.
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"

#include <gtest/gtest.h>

#include <cmath>

namespace echelon::testing {
namespace {

RunConfig float8_config(const Layout& layout) {
  RunConfig config = config_of(layout);
  config.model.hidden_size = 64;
  config.model.num_attention_heads = config.model.num_key_value_heads = 4;
  config.model.head_dim = 16;
  config.model.intermediate_size = 128;
  config.model.max_position_embeddings = 16;
  config.training.seq_len = 16;
  config.training.linear_dtype = LinearDType::float8;
  return config;
}

const Layout float8_layouts[] = {
    {.shard = 2, .pp = 2, .microbatches = 3, .zero = 3},
    {.tp = 2},
    {.tp = 4, .sequence_parallel = true, .family = Family::gpt2, .tied = true},
    {.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 3},
    // A rank has 6 or 4 tokens, in 8 rows: two sequences of them are a block of 16.
    {.tp = 1, .cp = 3},
    {.tp = 1, .cp = 3, .balancer = LoadBalancer::striped, .method = ContextMethod::all_gather},
    {.tp = 1, .cp = 4, .method = ContextMethod::ulysses},
    {.tp = 1, .documents = true, .cp = 4, .method = ContextMethod::ulysses_ring, .ulysses = 2},
    {.tp = 2, .sequence_parallel = true, .cp = 2},
    {.pp = 2, .microbatches = 2, .documents = true, .cp = 2}};

/// One rank with the same microbatches: a scale is that of a microbatch's tokens.
RunConfig alone(const RunConfig& config) {
  RunConfig one = one_rank(config);
  one.training.micro_batch_size = config.training.micro_batch_size;
  return one;
}

double largest_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]) / b[i]);
  return largest;
}

TEST(Float8, LayoutsEqualOneRank) {
  for (const Layout& layout : float8_layouts) {
    SCOPED_TRACE(name_of(layout));
    RunConfig config = float8_config(layout);
    config.training.steps = 3;
    const auto actual = run_training(config, {.at_end = [&](const RankView& rank) {
                                       expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
                                     }});
    const auto expected = run_training(alone(config));
    // Tensor and context parallelism cut what has one scale: tiny numbers are rounded otherwise, and now and then a
    // larger one behind them to its other neighbour.
    const double tolerance = layout.tp == 1 && layout.cp == 1 ? 1e-11 : 1e-6;
    EXPECT_NEAR(actual->losses[0], expected->losses[0], tolerance * expected->losses[0]);
    EXPECT_NEAR(actual->grad_norms[0], expected->grad_norms[0], tolerance * expected->grad_norms[0]);
    config.training.linear_dtype.reset();
    const auto plain = run_training(alone(config));
    EXPECT_GT(std::abs(plain->losses[0] - expected->losses[0]), 1e-4 * plain->losses[0]) << "something is rounded";
  }
}

TEST(Float8, LossesFollowFloat32) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    RunConfig config = float8_config({.tp = 2});
    config.training.dtype = dtype;
    config.training.steps = 30;
    config.model.initializer_range = 0.02;
    config.optimizer.lr = 3e-3;
    const auto actual = run_training(config);
    config.training.dtype = DType::float32;
    config.training.linear_dtype.reset();
    const auto expected = run_training(alone(config));
    EXPECT_LT(largest_distance(actual->losses, expected->losses), 0.01) << name_of(dtype);
  }
}

}  // namespace
}  // namespace echelon::testing
