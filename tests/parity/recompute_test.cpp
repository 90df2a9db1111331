// What backward forms again has the bits that forward would have kept: three whole steps, in every layout and dtype;
// and the locks hold for what runs twice.
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

using enum BlockOperation;

struct Kind {
  BlockOperations operations;
  RecomputeMethod method = RecomputeMethod::uniform;
};

const std::vector<Kind> kinds = {
    {attention_internals}, {whole_block}, {{core_attn, mlp}}, {{o_proj}}, {whole_block, RecomputeMethod::block}};

/// Accumulation, pipelines with uneven stages, backward in halves, several stages a rank, sequence parallelism and
/// sharded optimizers; every family.
const std::vector<Layout> recompute_layouts = {
    {.microbatches = 3, .layers = 2},
    {.microbatches = 2, .family = Family::gpt2, .tied = true, .layers = 2},
    {.tp = 2, .sequence_parallel = true, .microbatches = 3, .family = Family::qwen3},
    {.shard = 2, .tp = 3, .microbatches = 2, .family = Family::gpt2},
    {.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 3, .family = Family::qwen2, .tied = true},
    {.replicate = 2,
     .pp = 3,
     .schedule = PipelineSchedule::gpipe,
     .microbatches = 4,
     .layers = 7,
     .layers_per_stage = {1, 4, 2}},
    {.tp = 2,
     .pp = 2,
     .sequence_parallel = true,
     .schedule = PipelineSchedule::zb_h1,
     .microbatches = 4,
     .family = Family::qwen3,
     .layers = 5},
    {.pp = 2, .schedule = PipelineSchedule::zb_v, .microbatches = 4, .family = Family::gpt2, .tied = true, .layers = 6},
    {.shard = 2, .pp = 2, .schedule = PipelineSchedule::interleaved_one_f_one_b, .microbatches = 4, .layers = 6},
    {.shard = 2, .tp = 2, .sequence_parallel = true, .microbatches = 2, .zero = 3},
    {.replicate = 2,
     .shard = 2,
     .pp = 2,
     .schedule = PipelineSchedule::zb_h1,
     .microbatches = 4,
     .family = Family::gpt2,
     .tied = true,
     .zero = 3},
    {.tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 2, .documents = true},
    // windows after the first layer, which alone is recomputed by the method `block`
    {.microbatches = 2, .family = Family::qwen2, .layers = 3, .documents = true, .cp = 2, .window = 4},
};

/// Mixtures with a shared expert on every layout of their experts; with losses, of which a second count would show.
const std::vector<Layout> mixture_layouts = {
    {.microbatches = 2, .family = Family::qwen2, .experts = 6, .router_losses = true},
    {.tp = 2, .microbatches = 2, .family = Family::qwen2, .experts = 6, .router_losses = true},
    {.tp = 2, .sequence_parallel = true, .microbatches = 2, .experts = 6, .router_losses = true, .etp = 2},
    {.shard = 2,
     .tp = 2,
     .sequence_parallel = true,
     .microbatches = 2,
     .family = Family::qwen2,
     .zero = 3,
     .experts = 8,
     .router_losses = true,
     .ep = 4,
     .bound = 0.4},
    {.shard = 2,
     .pp = 2,
     .schedule = PipelineSchedule::zb_h1,
     .microbatches = 4,
     .family = Family::qwen2,
     .experts = 6,
     .router_losses = true,
     .ep = 2,
     .bound = 0.5},
    {.shard = 4, .microbatches = 2, .family = Family::qwen2, .experts = 8, .ep = 4, .ranks_per_node = 2},
    {.shard = 4, .microbatches = 2, .family = Family::qwen2, .experts = 8, .ep = 4, .ranks_per_node = 1},
    {.shard = 4, .pp = 2, .schedule = PipelineSchedule::zb_v, .microbatches = 4, .experts = 6, .ep = 2, .etp = 2},
};
const std::vector<Kind> mixture_kinds = {{{router}},
                                         {{experts}},
                                         {{shared_expert}},
                                         {{core_attn, router, shared_expert}},
                                         {{router, experts}, RecomputeMethod::block}};

class Recomputed : public ::testing::TestWithParam<std::tuple<Layout, DType>> {};

// Claim (reference): Recomputation in backward (`training.recompute`) changes no bit of losses,
//   gradients and weights.
// Bound: identical bits in float32, bfloat16 and float64.
// Tests: Recompute
TEST_P(Recomputed, GivesTheSameBits) {
  RunConfig config = config_of(std::get<0>(GetParam()));
  config.training.steps = 3;
  config.training.dtype = std::get<1>(GetParam());
  const auto expected = run_training(config);
  const auto at_end = [&](const RankView& rank) {
    expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
  };
  for (const Kind& kind : config.model.mixture.exists() ? mixture_kinds : kinds) {
    config.training.recompute = kind.operations;
    config.training.recompute_method = kind.method;
    const auto actual = run_training(config, {.at_end = at_end});
    SCOPED_TRACE(fmt::format("{}, {}", fmt::join(names_of(kind.operations), " "), name_of(kind.method)));
    EXPECT_EQ(actual->losses, expected->losses);
    EXPECT_EQ(actual->grad_norms, expected->grad_norms);
    EXPECT_EQ(actual->validation_loss, expected->validation_loss);
    EXPECT_EQ(actual->router_sums, expected->router_sums);
    EXPECT_EQ(worst_difference(actual->first_gradients, expected->first_gradients, 1).error, 0);
    EXPECT_EQ(worst_difference(actual->values, expected->values, 1).error, 0);
  }
}

std::string name_of_recompute(const ::testing::TestParamInfo<std::tuple<Layout, DType>>& info) {
  return name_of(std::get<0>(info.param)) + "_" + std::string(name_of(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(Layouts, Recomputed,
                         ::testing::Combine(::testing::ValuesIn(recompute_layouts),
                                            ::testing::Values(DType::float64, DType::float32, DType::bfloat16)),
                         name_of_recompute);
INSTANTIATE_TEST_SUITE_P(Mixtures, Recomputed,
                         ::testing::Combine(::testing::ValuesIn(mixture_layouts),
                                            ::testing::Values(DType::float64, DType::bfloat16)),
                         name_of_recompute);

}  // namespace
}  // namespace echelon::testing
