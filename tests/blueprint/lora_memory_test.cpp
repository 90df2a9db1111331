// What a frozen base leaves out: gradients, master weights, moments, and their traffic.
#include "blueprint/blueprint.h"
#include "blueprint/small_config.h"
#include "spec/config/model_flops.h"
#include "spec/groups.h"

#include <gtest/gtest.h>

#include <map>

namespace echelon {
namespace {

constexpr std::int64_t rank_of_adapters = 8;

RunConfig lora_config() {
  RunConfig config = testing::small_config();
  config.training.dtype = DType::bfloat16;
  config.lora.rank = rank_of_adapters;
  return config;
}

/// r (in + out) of each linear layer of small_config: q, k, v, o, gate, up, down.
std::int64_t num_in_adapters(const RunConfig& config) {
  const std::int64_t D = config.model.hidden_size, F = config.model.intermediate_size;
  return config.model.num_hidden_layers * rank_of_adapters * (4 * (D + D) + 3 * (D + F));
}

std::int64_t num_in_down_adapters(const RunConfig& config) {
  return config.model.num_hidden_layers * rank_of_adapters *
         (config.model.hidden_size + config.model.intermediate_size);
}

std::int64_t sent_over_shards(const RankBlueprint& rank, CommKind kind) {
  std::int64_t sent = 0;
  for (const Action& action : rank.program(ProgramKind::training))
    for (const CommRecord& comm : rank.trace(ProgramKind::training).of(action).communications())
      if (comm.group == shard_group && comm.kind == kind) sent += comm.sent_bytes;
  return sent;
}

struct KeptBytes {
  std::int64_t parameters = 0, gradients = 0, masters = 0, moments = 0;
};
/// Of four ranks together.
KeptBytes kept_bytes(const RunConfig& config) {
  const Blueprint blueprint(config);
  KeptBytes kept;
  for (int rank = 0; rank < 4; ++rank) {
    const RankBlueprint of_rank = blueprint.rank(rank);
    const MemoryPlan& plan = of_rank.memory(ProgramKind::training);
    kept.parameters += plan.peak_bytes(MemoryCategory::parameters);
    kept.gradients += plan.peak_bytes(MemoryCategory::gradients);
    kept.masters += plan.peak_bytes(MemoryCategory::master_weights);
    kept.moments += plan.peak_bytes(MemoryCategory::moments);
  }
  return kept;
}

// Claim (plans): A frozen base has no gradients, optimizer states or traffic of gradients.
// Bound: to the byte, at every level of ZeRO.
// Tests: LoraMemory
TEST(LoraMemory, TheBaseHasItsParametersAlone) {
  const RunConfig config = lora_config();
  const std::int64_t base = config.model.num_parameters(), n = num_in_adapters(config);
  const Blueprint blueprint(config);
  const RankBlueprint rank = blueprint.rank(0);
  const MemoryPlan& plan = rank.memory(ProgramKind::training);
  EXPECT_EQ(plan.peak_bytes(MemoryCategory::parameters), 2 * (base + n));
  EXPECT_EQ(plan.peak_bytes(MemoryCategory::gradients), 4 * n);
  EXPECT_EQ(plan.peak_bytes(MemoryCategory::master_weights), 4 * n);
  EXPECT_EQ(plan.peak_bytes(MemoryCategory::moments), 8 * n);
}

TEST(LoraMemory, ZeroThreeShardsTheBaseToo) {
  for (const std::int64_t level : {1, 2, 3}) {
    RunConfig config = lora_config();
    config.parallelism.data_parallel_shard_degree = 4;
    config.parallelism.zero_level = level;
    const std::int64_t base = config.model.num_parameters(), n = num_in_adapters(config);
    const Blueprint blueprint(config);
    std::int64_t parameters = 0, gradients = 0, moments = 0;  // of all ranks, since one may own padding instead
    for (int rank = 0; rank < 4; ++rank) {
      const RankBlueprint of_rank = blueprint.rank(rank);
      const MemoryPlan& plan = of_rank.memory(ProgramKind::training);
      parameters += plan.peak_bytes(MemoryCategory::parameters);
      gradients += plan.peak_bytes(MemoryCategory::gradients);
      moments += plan.peak_bytes(MemoryCategory::moments);
    }
    EXPECT_EQ(parameters, 2 * (base + n) * (level == 3 ? 1 : 4)) << level;
    EXPECT_EQ(gradients, 4 * n * (level == 1 ? 4 : 1)) << level;
    EXPECT_EQ(moments, 8 * n) << level;
  }
}

// Modules that are trained whole have what all have in a run without adapters, and no adapters.
TEST(LoraMemory, SavedModulesHaveGradientsAndStates) {
  for (const bool is_tied : {false, true})
    for (const std::int64_t level : {1, 2, 3}) {
      RunConfig config = lora_config();
      config.model.tie_word_embeddings = is_tied;
      config.lora.modules_to_save = {"lm_head", "norm", "down_proj"};
      config.parallelism.data_parallel_shard_degree = 4;
      config.parallelism.zero_level = level;
      const ModelSpec& m = config.model;
      const std::int64_t D = m.hidden_size, F = m.intermediate_size, L = m.num_hidden_layers,
                         whole = m.vocab_size * D + (2 * L + 1) * D + L * D * F,
                         n = num_in_adapters(config) - num_in_down_adapters(config), base = m.num_parameters();
      const auto [parameters, gradients, masters, moments] = kept_bytes(config);
      EXPECT_EQ(parameters, 2 * (base + n) * (level == 3 ? 1 : 4)) << level;
      EXPECT_EQ(gradients, 4 * (n + whole) * (level == 1 ? 4 : 1)) << level;
      EXPECT_EQ(masters, 4 * (n + whole)) << level;
      EXPECT_EQ(moments, 8 * (n + whole)) << level;
    }
}

/// Matmuls of a step, without those of attention, are what model_flops_per_token counts for weights, and 2 N_a more, as
/// the backward pass computes u and du again. Both count dx of the first block, for which nothing below asks.
void expect_flops_of_matmuls(RunConfig config, std::int64_t num_adapted, std::int64_t flops_of_norm) {
  config.training.global_batch_size = config.training.micro_batch_size;
  const ModelSpec& m = config.model;
  const Blueprint blueprint(config);
  const RankBlueprint rank = blueprint.rank(0);
  double flops = 0;
  for (const Action& action : rank.program(ProgramKind::training))
    for (const OpRecord& op : rank.trace(ProgramKind::training).of(action).operations())
      if (op.kind == OpKind::matmul) flops += 2.0 * static_cast<double>(op.m * op.n * op.k);
  const auto tokens = static_cast<double>(config.training.global_batch_size * config.training.seq_len);
  const std::int64_t attention =
                         12 * m.num_hidden_layers * m.num_attention_heads * m.head_dim * config.training.seq_len,
                     of_norms = flops_of_norm * (2 * m.num_hidden_layers + 1) * m.hidden_size;
  EXPECT_DOUBLE_EQ(flops / tokens, model_flops_per_token(config) - static_cast<double>(attention + of_norms) +
                                       2.0 * static_cast<double>(num_adapted));
}

TEST(LoraFlops, AreThoseOfTheMatmulsOfAStep) {
  RunConfig config = lora_config();
  expect_flops_of_matmuls(config, num_in_adapters(config), 4);
  config.lora.modules_to_save = {"lm_head", "norm", "down_proj"};
  expect_flops_of_matmuls(config, num_in_adapters(config) - num_in_down_adapters(config), 6);
}

/// Four experts on two ranks each, and a shared one with a gate.
RunConfig mixture_config(std::int64_t level) {
  RunConfig config = lora_config();
  config.model.family = Family::qwen2_moe;
  config.model.mixture = {.num_experts = 4,
                          .moe_intermediate_size = 32,
                          .shared_expert_intermediate_size = 48,
                          .gates_shared_expert = true};
  config.parallelism.data_parallel_shard_degree = 4;
  config.parallelism.expert_parallel_degree = 2;
  config.parallelism.zero_level = level;
  return config;
}

// Claim (plans): Frozen experts and routers have their parameters alone.
// Bound: to the byte, at every level of ZeRO, with experts over ranks.
// Tests: MixtureLoraMemory
TEST(MixtureLoraMemory, ExpertsHaveTheirParametersAlone) {
  for (const std::int64_t level : {1, 2, 3}) {
    const RunConfig config = mixture_config(level);
    const ModelSpec& m = config.model;
    const std::int64_t D = m.hidden_size, in_experts = m.num_hidden_layers * 4 * 3 * D * 32,
                       dense = m.num_parameters() - in_experts,
                       n = m.num_hidden_layers * rank_of_adapters * (4 * (D + D) + 3 * (D + 48));
    const auto [parameters, gradients, masters, moments] = kept_bytes(config);
    EXPECT_EQ(parameters, 2 * (level == 3 ? dense + in_experts + n : 4 * (dense + n) + 2 * in_experts)) << level;
    EXPECT_EQ(gradients, 4 * n * (level == 1 ? 4 : 1)) << level;
    EXPECT_EQ(masters, 4 * n) << level;
    EXPECT_EQ(moments, 8 * n) << level;
  }
}

// No pass computes gradients of experts, and backward_weight exchanges no rows for them.
TEST(MixtureLoraMemory, ExpertsHaveNoWeightGradients) {
  RunConfig config = mixture_config(1);
  config.parallelism.pipeline_parallel_degree = 2;
  config.parallelism.pipeline_parallel_schedule = PipelineSchedule::zb_h1;
  std::map<bool, std::int64_t> products, exchanges, stash;
  for (const bool trains : {false, true}) {
    if (trains) config.lora = {};
    const Blueprint blueprint(config);
    const RankBlueprint rank = blueprint.rank(0);
    for (const Action& action : rank.program(ProgramKind::training)) {
      for (const OpRecord& op : rank.trace(ProgramKind::training).of(action).operations())
        products[trains] += op.kind == OpKind::grouped_matmul_backward_weight ? 1 : 0;
      if (action.kind != ActionKind::backward_weight) continue;
      for (const CommRecord& comm : rank.trace(ProgramKind::training).of(action).communications())
        exchanges[trains] += comm.group == expert_group(2) ? 1 : 0;
    }
    stash[trains] = rank.memory(ProgramKind::training).peak_bytes(MemoryCategory::activations);
  }
  EXPECT_EQ(products[false], 0);
  EXPECT_GT(products[true], 0);
  EXPECT_EQ(exchanges[false], 0);
  EXPECT_LT(stash[false], stash[true]);
}

// No gradient of the base travels: adapters are reduced and, up to ZeRO-2, gathered. ZeRO-3 gathers the base, as it
// does where all is trained.
TEST(LoraMemory, OnlyAdaptersAreReduced) {
  for (const std::int64_t level : {1, 3}) {
    RunConfig config = lora_config();
    config.parallelism.data_parallel_shard_degree = 4;
    config.parallelism.zero_level = level;
    config.training.global_batch_size = 4 * config.training.micro_batch_size;  // one microbatch
    const std::int64_t n = num_in_adapters(config);
    const Blueprint blueprint(config);
    const RankBlueprint rank = blueprint.rank(0);
    EXPECT_EQ(sent_over_shards(rank, CommKind::reduce_scatter), 3 * 4 * n / 4) << "float32 gradients";
    const std::int64_t gathered = sent_over_shards(rank, CommKind::all_gather);
    if (level == 1) {
      EXPECT_EQ(gathered, 3 * 2 * n / 4);
      continue;
    }
    config.lora = {};
    const Blueprint whole(config);
    const std::int64_t of_base = sent_over_shards(whole.rank(0), CommKind::all_gather);
    // Twice each block, as the units before and after the blocks are the first and the last one of the stage.
    EXPECT_EQ(gathered - of_base, 2 * 3 * 2 * n / 4);
  }
}

}  // namespace
}  // namespace echelon
