// The exchange of experts in predicted timelines: bars inside of passes, on devices and on a host.
#include "predict/host/host_step.h"
#include "predict/simulation/simulate.h"

#include <gtest/gtest.h>

#include <map>

namespace echelon {
namespace {

RunConfig config_of_lane(Family family, int num_ranks, int num_stages) {
  RunConfig config;
  config.model = family_defaults(family);
  ModelSpec& model = config.model;
  model.hidden_size = 64;
  model.num_hidden_layers = 4;
  model.num_attention_heads = model.num_key_value_heads = 4;
  model.head_dim = 16;
  model.intermediate_size = 64;
  model.vocab_size = 64;
  model.max_position_embeddings = 64;
  model.mixture.num_experts = 8;
  model.mixture.num_experts_per_tok = 2;
  model.mixture.moe_intermediate_size = 64;
  if (family == Family::qwen2_moe) model.mixture.shared_expert_intermediate_size = 64;
  config.training.seq_len = 64;
  config.training.global_batch_size = 2 * num_ranks;
  config.parallelism.data_parallel_shard_degree = config.parallelism.expert_parallel_degree = num_ranks;
  config.parallelism.pipeline_parallel_degree = num_stages;
  config.moe.dispatch_bound = 1;
  return config;
}

/// Matmuls and links take time.
MachineSpec linked_machine() {
  NodeSpec node;
  node.num_devices = 8;
  node.device = {.name = "linked",
                 .memory_bytes = 1 << 30,
                 .memory_bandwidth = 1e30,
                 .formats = {{"float32", {.peak_flops = 1e12}}}};
  node.device.vector_flops = 1e30;
  node.link = {.bandwidth = 1e9};
  node.num_nics = 8;
  node.nic_bandwidth = 1e9;
  MachineSpec machine;
  machine.nodes = {node};
  return machine;
}

struct InPass {
  double seconds = 0;
  int num_dispatches = 0, num_combines = 0;
};

/// Of each pass, which all are inside of and follow each other in.
std::map<std::pair<int, int>, InPass> exchanges_by_pass(const Timeline& timeline) {
  std::map<std::pair<int, int>, Event> events;
  for (const Event& event : timeline.events) events[{event.rank, event.action_id}] = event;
  std::map<std::pair<int, int>, InPass> passes;
  const ExchangeEvent* before = nullptr;
  for (const ExchangeEvent& exchange : timeline.exchanges) {
    const std::pair key = {exchange.rank, exchange.action_id};
    const double least = 1e-9 * events[key].end;
    EXPECT_GE(exchange.start, events[key].start - least);
    EXPECT_LE(exchange.end, events[key].end + least);
    if (before != nullptr && before->rank == exchange.rank) {
      EXPECT_GE(exchange.start, before->end - least);
    }
    before = &exchange;
    InPass& pass = passes[key];
    pass.seconds += exchange.end - exchange.start;
    ++(exchange.name == "dispatch" ? pass.num_dispatches : pass.num_combines);
  }
  return passes;
}

/// Rows go there and back once in each of four layers, in the forward and the backward pass of two microbatches.
void expect_all_exchanges(const Timeline& timeline) {
  int num_dispatches = 0;
  for (const auto& [key, pass] : exchanges_by_pass(timeline)) {
    EXPECT_EQ(pass.num_dispatches, pass.num_combines);
    num_dispatches += pass.num_dispatches;
  }
  EXPECT_EQ(num_dispatches, 4 * 2 * 2);
}

TEST(ExpertLane, HasABarForEveryExchange) {
  const Blueprint blueprint(config_of_lane(Family::qwen2_moe, 4, 2));
  expect_all_exchanges(simulate(blueprint, linked_machine()).timeline);
}

/// Seconds of the first forward in which rows travel, less those of them that nothing hides.
double hidden_seconds(Family family) {
  const Blueprint blueprint(config_of_lane(family, 4, 1));
  const Simulation step = simulate(blueprint, linked_machine());
  for (const Action& action : blueprint.programs(ProgramKind::training)[0]) {
    if (action.kind != ActionKind::forward) continue;
    const auto at = static_cast<std::size_t>(action.id);
    double other = 0;
    for (const MessageTime& message : step.ranks[0].layer_messages[at])
      other += message.purpose == RowPurpose::other ? message.end - message.start : 0;
    return exchanges_by_pass(step.timeline).at({0, action.id}).seconds -
           (step.ranks[0].layers_send_seconds[at] - other);
  }
  return 0;
}

// The shared expert alone hides them: on devices this fast all of it, in each of four layers.
TEST(ExpertLane, LiesNextToWhatHidesIt) {
  const double shared_flops = 3 * 2 * 64 * 64 * 64, gate_flops = 2 * 64 * 64;
  EXPECT_NEAR(hidden_seconds(Family::mixtral), 0, 1e-12);
  EXPECT_NEAR(hidden_seconds(Family::qwen2_moe) * 1e12 / 4, shared_flops + gate_flops, 1);
}

TEST(ExpertLane, IsThereOnAHost) {
  HostSpec host;
  host.num_cores = 2;
  host.memory_bytes = std::int64_t{1} << 30;
  for (int kind = 0; kind <= static_cast<int>(OpKind::download); ++kind)
    host.operations[std::string(name_of(static_cast<OpKind>(kind)))]["float32"] = {{1, 1, 1, 1e9, 1, 1, 0.5}};
  const Blueprint blueprint(config_of_lane(Family::qwen2_moe, 2, 2));
  expect_all_exchanges(host_step(blueprint, host).timeline);
}

}  // namespace
}  // namespace echelon
