// The lock between experts of a run and their trace: given the loads that the run had, the trace has its rows, rounds
// and bytes. Without them it has those of even loads.
#include "blueprint/program_touches.h"
#include "ops/cpu/cpu_ops.h"
#include "parity/layout.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <vector>

namespace echelon::testing {
namespace {

/// What a rank computed and sent.
struct Counted {
  std::map<std::array<std::int64_t, 3>, std::int64_t> products;
  std::int64_t expert_flops = 0;
  std::map<Group, std::int64_t> sent;
  bool operator==(const Counted&) const = default;
};

template <class Key>
std::map<Key, std::int64_t> since(const std::map<Key, std::int64_t>& before, std::map<Key, std::int64_t> now) {
  for (const auto& [key, count] : before) now[key] -= count;
  std::erase_if(now, [](const auto& each) { return each.second == 0; });
  return now;
}

Counted counted_by(const RankView& rank) {
  const auto& ops = dynamic_cast<const CpuOps&>(rank.ops);
  return {ops.matmul_counts(), ops.expert_flops(), rank.mesh.sent_bytes()};
}

Counted since(const Counted& before, const Counted& now) {
  return {since(before.products, now.products), now.expert_flops - before.expert_flops, since(before.sent, now.sent)};
}

class Counter final : public TouchListener {
 public:
  void begins(const Action& /*action*/) override {}
  void performed(const OpRecord& operation, std::span<const Touch> /*touches*/) override {
    const OpKind kind = operation.kind;
    const std::int64_t m = operation.m, n = operation.n, k = operation.k;
    if (kind == OpKind::matmul && m * n * k > 0) ++counted.products[{m, n, k}];
    if (kind == OpKind::grouped_matmul || kind == OpKind::grouped_matmul_backward_weight)
      counted.expert_flops += operation.flops;
  }
  void started(const CommRecord& communication) override {
    if (communication.sent_bytes > 0) counted.sent[communication.group] += communication.sent_bytes;
  }
  void waited() override {}

  Counted counted;
};

// Claim (plans): A trace that is given the rows that experts had in a run has its rounds, matmuls and bytes.
// Bound: equal to what backend and transport counted, for 13 layouts, with loads of a router.
// Tests: ExpertLoads
TEST(ExpertLoads, GiveATraceTheRowsAndRoundsOfARun) {
  using enum PipelineSchedule;
  std::int64_t num_more_rounds = 0, num_other_traces = 0;
  for (const Layout& layout :
       std::vector<Layout>{{.shard = 4, .experts = 8, .ep = 4, .bound = 0.4},
                           {.shard = 4, .experts = 8, .ep = 4, .bound = 2},
                           {.shard = 8, .experts = 8, .ep = 8, .bound = 0.5, .ranks_per_node = 4},
                           {.shard = 8, .experts = 8, .ep = 4, .bound = 0.6, .ranks_per_node = 2},
                           {.shard = 8, .experts = 8, .ep = 4, .bound = 0.6, .ranks_per_node = 1},
                           {.shard = 2, .cp = 2, .experts = 8, .ep = 4, .bound = 2, .ranks_per_node = 1},
                           {.shard = 4, .experts = 8, .ep = 2, .etp = 2, .bound = 0.7},
                           {.shard = 4, .zero = 3, .experts = 8, .ep = 2, .capacity = 0.8},
                           {.shard = 2, .tp = 2, .sequence_parallel = true, .experts = 8, .ep = 4, .bound = 0.5},
                           {.shard = 2, .pp = 2, .schedule = zb_h1, .experts = 8, .ep = 2, .bound = 0.5},
                           {.shard = 2, .cp = 2, .experts = 8, .ep = 4, .bound = 0.5},
                           {.shard = 4, .recompute = whole_block, .experts = 8, .ep = 4, .bound = 0.5},
                           {.shard = 4, .seq_len = 13, .experts = 8, .ep = 2, .bound = 0.3}}) {
    SCOPED_TRACE(name_of(layout));
    RunConfig config = config_of(layout);
    config.training.steps = 3;
    config.lr_scheduler.warmup_steps = 2;
    const Blueprint blueprint(config);
    const auto num_ranks = static_cast<std::size_t>(config.mesh_shape().num_ranks());
    std::vector<std::array<ExpertLoads, num_program_kinds>> loads(num_ranks);
    std::vector<Counted> before(num_ranks);
    std::vector<std::array<std::int64_t, 2>> differences(num_ranks);
    const auto after_step = [&](const RankView& rank, std::int64_t step) {
      const auto index = static_cast<std::size_t>(rank.mesh.rank());
      if (step != 1) return;
      for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation})
        rank.run.step().record_loads(kind, loads[index][static_cast<std::size_t>(kind)]);
      before[index] = counted_by(rank);
    };
    const auto at_end = [&](const RankView& rank) {
      const auto index = static_cast<std::size_t>(rank.mesh.rank());
      SCOPED_TRACE(fmt::format("rank {}", index));
      Counter of_loads, of_plan;
      for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation}) {
        const std::size_t steps = kind == ProgramKind::training ? 2 : 1;
        const std::vector<TouchListener*> runs(steps, &of_loads), planned_runs(steps, &of_plan);
        ExpertLoads& had = loads[index][static_cast<std::size_t>(kind)];
        execute_on_addresses(blueprint, rank.run.blueprint(), kind, runs, &had);
        EXPECT_TRUE(had.is_at_end());
        execute_on_addresses(blueprint, rank.run.blueprint(), kind, planned_runs);
      }
      const Counted counted = since(before[index], counted_by(rank));
      EXPECT_EQ(counted.products, of_loads.counted.products);
      EXPECT_EQ(counted.expert_flops, of_loads.counted.expert_flops);
      EXPECT_EQ(counted.sent, of_loads.counted.sent);
      const ExpertTraffic& traffic = rank.run.step().expert_traffic(ProgramKind::training);
      differences[index] = {traffic.num_rounds - traffic.num_exchanges, of_plan.counted == of_loads.counted ? 0 : 1};
    };
    (void)run_training(config, {.after_step = after_step, .at_end = at_end});
    for (const auto& [more_rounds, is_other_trace] : differences)
      num_more_rounds += more_rounds, num_other_traces += is_other_trace;
  }
  EXPECT_GT(num_more_rounds, 0);
  EXPECT_GT(num_other_traces, 0);
}

}  // namespace
}  // namespace echelon::testing
