// Thread ranks on shared cores: what can be worked out by hand.
#include "predict/host/host_step.h"

#include "base/error.h"
#include "predict/machine/host_time.h"
#include "predict/simulation/simulate.h"
#include "spec/config/run_config.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

RunConfig config(int data_ranks, int tensor_ranks) {
  RunConfig config;
  config.model = family_defaults(Family::llama);
  config.model.hidden_size = 32;
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = config.model.num_key_value_heads = 4;
  config.model.head_dim = 8;
  config.model.intermediate_size = 64;
  config.model.vocab_size = 64;
  config.model.max_position_embeddings = 64;
  config.training.seq_len = 16;
  config.training.global_batch_size = 8;
  config.parallelism.data_parallel_replicate_degree = data_ranks;
  config.parallelism.tensor_parallel_degree = tensor_ranks;
  return config;
}

/// A product takes a second on a core and half of that on both; all else is free, and so is what is sent.
HostSpec products_alone() {
  HostSpec host;
  host.num_cores = 2;
  host.memory_bytes = std::int64_t{1} << 30;
  for (int kind = 0; kind <= static_cast<int>(OpKind::download); ++kind) {
    const bool is_product = static_cast<OpKind>(kind) == OpKind::matmul;
    const double amount = is_product ? 1 : 1e30;
    host.operations[std::string(name_of(static_cast<OpKind>(kind)))]["float32"] = {{1, 1, 1, amount, 1, 1, 0.5}};
  }
  return host;
}

/// Flops of the products of a rank's step: seconds on the machine above.
double product_seconds(const Blueprint& blueprint) {
  const RankBlueprint rank = blueprint.rank(0);
  double flops = 0;
  for (const Action& action : rank.program(ProgramKind::training))
    for (const OpRecord& each : rank.trace(ProgramKind::training).of(action).operations())
      flops += each.kind == OpKind::matmul ? static_cast<double>(each.flops) : 0;
  return flops;
}

TEST(HostStep, OneRankComputesOnBothCores) {
  const Blueprint blueprint(config(1, 1));
  const HostStep step = host_step(blueprint, products_alone());
  EXPECT_NEAR(step.seconds / (product_seconds(blueprint) / 2), 1, 1e-9);
  EXPECT_NEAR(step.parts[0].total_seconds() / step.seconds, 1, 1e-9);
}

TEST(HostStep, ProductsInFloat8AreNotTimed) {
  RunConfig float8 = config(1, 1);
  float8.training.linear_dtype = LinearDType::float8;
  EXPECT_THROW((void)host_step(Blueprint(float8), products_alone()), Error);
}

TEST(HostStep, AsManyRanksAsCoresComputeAtTheSameTime) {
  const Blueprint blueprint(config(2, 1));
  EXPECT_NEAR(host_step(blueprint, products_alone()).seconds / product_seconds(blueprint), 1, 1e-9);
}

TEST(HostStep, MoreRanksTakeTurnsAndNoCoreIsIdle) {
  for (const auto& [data, tensor] : {std::pair{4, 1}, {8, 1}, {2, 4}}) {
    const Blueprint blueprint(config(data, tensor));
    const int num_ranks = data * tensor;
    const HostStep step = host_step(blueprint, products_alone());
    EXPECT_NEAR(step.seconds / (product_seconds(blueprint) * num_ranks / 2), 1, 1e-6) << num_ranks;
    EXPECT_NEAR(step.busy_core_seconds / (2 * step.seconds), 1, 1e-6) << num_ranks;
    for (const StepParts& parts : step.parts) EXPECT_NEAR(parts.total_seconds() / step.seconds, 1, 1e-6);
  }
}

TEST(HostStep, ASlowRankIsHelpedByTheOther) {
  const Blueprint blueprint(config(2, 1));
  // Work of 1 and 3: for as long as both compute, a core each; then the other core helps: 1 + 2 / 2. What the norm of
  // the gradients waits for is free.
  EXPECT_NEAR(host_step(blueprint, products_alone(), {.slow_ranks = {{1, 3.0}}}).seconds / product_seconds(blueprint),
              2, 1e-6);
}

// Each on its core, and what they all-reduce takes a second per byte that is moved (2 n of the buffer's), one after the
// other.
TEST(HostStep, ProcessesWaitForEachOtherAndHelpNobody) {
  const Blueprint blueprint(config(2, 1));
  HostSpec host = products_alone();
  EXPECT_THROW((void)host_step_of_processes(blueprint, host), Error);  // nobody has measured their collectives
  host.collectives["mpi"]["all_reduce"] = {{2, 4, 16}};
  double sent_seconds = 0;
  const RankBlueprint rank = blueprint.rank(0);
  for (const Action& action : rank.program(ProgramKind::training))
    for (const CommRecord& each : rank.trace(ProgramKind::training).of(action).communications())
      if (each.group_size > 1 && each.kind == CommKind::all_reduce)
        sent_seconds += 4.0 * static_cast<double>(each.num_elements * size_of(each.dtype));
  ASSERT_GT(sent_seconds, 0);
  EXPECT_NEAR(host_step_of_processes(blueprint, host).seconds / (product_seconds(blueprint) + sent_seconds), 1, 1e-6);
  EXPECT_THROW((void)host_step_of_processes(Blueprint(config(4, 1)), host), Error);  // more than cores
}

TEST(HostTime, OfAMeasuredSizeIsWhatWasMeasured) {
  HostSpec host = products_alone();
  host.operations["matmul"]["float32"] = {{8, 8, 8, 1024, 3, 4, 2}, {64, 64, 64, 524288, 300, 400, 200}};
  HostTime time(host, 2);
  EXPECT_NEAR(time.of(OpRecord{.kind = OpKind::matmul, .m = 64, .n = 64, .k = 64, .flops = 524288, .bytes = 1}).busy,
              400, 1e-9);
  EXPECT_NEAR(time.of(OpRecord{.kind = OpKind::matmul, .m = 8, .n = 8, .k = 8, .flops = 1024, .bytes = 1}).shared, 2,
              1e-9);
}

TEST(HostTime, OfAWeightGradientIsItsOwnIfItWasMeasured) {
  HostSpec host = products_alone();
  OpRecord gradient{.kind = OpKind::matmul, .m = 8, .n = 8, .k = 8, .flops = 8, .bytes = 1};
  gradient.is_weight_gradient = true;
  const auto busy = [&](const OpRecord& record) { return HostTime(host, 2).of(record).busy; };
  EXPECT_EQ(busy(gradient), 8);  // as y = x w^T
  host.operations["matmul_weight_gradient"]["float32"] = {{1, 1, 1, 1, 1.5, 1.5, 1}};
  EXPECT_NEAR(busy(gradient), 12, 1e-9);
  gradient.is_weight_gradient = false;
  EXPECT_EQ(busy(gradient), 8);
}

TEST(Simulate, AHostHasRoomForAllItsRanks) {
  const Blueprint blueprint(config(4, 1));
  const Simulation result = simulate(blueprint, machine_of(products_alone()));
  EXPECT_EQ(result.memory.front().arena_bytes, blueprint.rank(0).arena_bytes());
  EXPECT_EQ(result.memory.front().device_bytes, (std::int64_t{1} << 30) / 4);
  EXPECT_EQ(result.step_seconds, host_step(blueprint, products_alone()).seconds);
}

// Attention takes a second per flop, and what documents leave of it on each of two ranks.
TEST(Simulate, AHostTakesTheAttentionThatDocumentsLeave) {
  const Blueprint blueprint(config(2, 1));
  HostSpec host = products_alone();
  for (const char* kind : {"attention", "attention_backward"})
    host.operations[kind]["float32"] = {{1, 1, 1, 1e-3, 1, 1, 0.5}};
  const auto seconds = [&](std::vector<double> shares) {
    return simulate(blueprint, machine_of(host), {.attention_shares = std::move(shares)}).step_seconds;
  };
  const double none = seconds({0, 0}), all = seconds({}) - none;
  EXPECT_GT(all, none);
  EXPECT_NEAR((seconds({0.25, 0.25}) - none) / all, 0.25, 1e-6);
}

// What is drawn and told of a step on GPUs is there of a step on a host, too.
TEST(Simulate, AHostsRanksHaveLanesTrafficAndPartsLikeOthers) {
  RunConfig two_stages = config(2, 1);
  two_stages.parallelism.pipeline_parallel_degree = 2;
  const Blueprint blueprint(two_stages);
  const Simulation result = simulate(blueprint, machine_of(products_alone()), {.slow_ranks = {{1, 3.0}}});
  ASSERT_EQ(result.ranks.size(), 2U);
  StepParts parts;
  for (const SimulatedRank& rank : result.ranks) {
    EXPECT_EQ(rank.lanes.size(), blueprint.rank(rank.rank).program(ProgramKind::training).size());
    EXPECT_LT(static_cast<std::size_t>(*std::max_element(rank.lanes.begin(), rank.lanes.end())),
              rank.lane_names.size());
    EXPECT_NEAR(rank.parts.total_seconds(), result.step_seconds, 1e-9 * result.step_seconds);
    StepParts of_all = rank.parts;
    parts += (of_all *= rank.num_ranks);
    std::int64_t held = 0;
    for (const auto& [category, bytes] : result.memory[static_cast<std::size_t>(rank.pipeline_rank)].bytes_at_peak)
      held += bytes;
    EXPECT_GT(held, 0.9 * static_cast<double>(result.memory[static_cast<std::size_t>(rank.pipeline_rank)].arena_bytes));
    EXPECT_EQ(rank.sent_bytes.contains("pp"), true);
  }
  EXPECT_NEAR(parts.compute_seconds / 4, result.parts.compute_seconds, 1e-9 * result.step_seconds);
  EXPECT_EQ(result.sent_bytes.at("pp"),
            2 * (result.ranks[0].sent_bytes.at("pp") + result.ranks[1].sent_bytes.at("pp")));
}

}  // namespace
}  // namespace echelon
