// The feed-forward branch in chunks of tokens: layouts equal one rank without chunks, and the locks hold.
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace echelon::testing {
namespace {

using enum BlockOperation;

// Gathered tokens, partial sums, backward in halves, gathered parameters; each activation, with and without biases.
const std::vector<Layout> layouts = {
    {.microbatches = 3, .layers = 2},
    {.tp = 3, .microbatches = 2, .family = Family::gpt2},
    {.shard = 2, .tp = 2, .sequence_parallel = true, .microbatches = 2, .zero = 3},
    {.tp = 2,
     .pp = 2,
     .sequence_parallel = true,
     .schedule = PipelineSchedule::zb_h1,
     .microbatches = 4,
     .family = Family::gpt2,
     .layers = 5},
    {.pp = 2, .schedule = PipelineSchedule::zb_v, .microbatches = 4, .tied = true, .layers = 5, .cp = 2, .seq_len = 13},
};

class MlpChunks : public ::testing::TestWithParam<Layout> {};

TEST_P(MlpChunks, EqualOneRank) {
  RunConfig config = config_of(GetParam());
  config.training.steps = 3;
  const auto expected = run_training(one_rank(config));
  for (const BlockOperations& operations : {BlockOperations{mlp}, whole_block})
    for (const std::int64_t chunk : {1, 5, 1000}) {
      SCOPED_TRACE(fmt::format("{} chunks of {}", fmt::join(names_of(operations), " "), chunk));
      config.training.recompute = operations;
      config.training.mlp_chunk_tokens = chunk;
      const auto at_end = [&](const RankView& rank) {
        expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
      };
      expect_equal(*run_training(config, {.at_end = at_end}), *expected, 1e-11, 1e-9, config.optimizer.lr);
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, MlpChunks, ::testing::ValuesIn(layouts),
                         [](const auto& layout) { return name_of(layout.param); });

struct Traced {
  std::int64_t values = 0;  // the most of an activation
  std::int64_t num_activations = 0;
  std::int64_t flops = 0, sent = 0;  // of a step
};

Traced traced(const RunConfig& config) {
  const Blueprint blueprint(config);
  const RankBlueprint rank = blueprint.rank(0);
  Traced sum;
  for (const Action& action : rank.program(ProgramKind::training)) {
    const CallTrace& trace = rank.trace(ProgramKind::training).of(action);
    for (const OpRecord& op : trace.operations()) {
      const bool is_activation = op.kind == OpKind::swiglu || op.kind == OpKind::swiglu_backward;
      if (is_activation) sum.values = std::max(sum.values, op.m);
      sum.num_activations += is_activation ? 1 : 0;
      sum.flops += op.kind == OpKind::matmul ? op.flops : 0;
    }
    for (const CommRecord& message : trace.communications()) sum.sent += message.num_elements;
  }
  return sum;
}

// One block and microbatch of 24 tokens in chunks of 5: four of 5 and one of 4, forward and backward. Products and
// messages are those of `recompute = mlp` without chunks.
TEST(MlpChunks, CostWhatRecomputationCosts) {
  RunConfig config = config_of({.tp = 2, .sequence_parallel = true, .microbatches = 1, .layers = 1, .seq_len = 12});
  config.training.recompute = {mlp};
  const Traced whole = traced(config);
  config.training.mlp_chunk_tokens = 5;
  const Traced chunks = traced(config);
  constexpr std::int64_t F = 45 / 2;  // of rank 0
  EXPECT_EQ(whole.values, 24 * F);
  EXPECT_EQ(whole.num_activations, 2);
  EXPECT_EQ(chunks.values, 5 * F);
  EXPECT_EQ(chunks.num_activations, 10);
  EXPECT_EQ(chunks.flops, whole.flops);
  EXPECT_EQ(chunks.sent, whole.sent);
}

}  // namespace
}  // namespace echelon::testing
