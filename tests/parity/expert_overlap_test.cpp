// The shared expert and further rounds are computed while rows of experts travel: what that hides on a transport which
// takes time and no core, by the events of the trace.
#include "parity/layout.h"
#include "parity/training_run.h"
#include "predict/step/action_cost.h"
#include "spec/groups.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace echelon::testing {
namespace {

/// One block with experts over ranks, and a shared one that takes a good part of its time.
RunConfig config_with(std::int64_t shared_width, int ranks_per_node) {
  RunConfig config =
      config_of({.shard = 4, .layers = 1, .experts = 12, .ep = 4, .bound = 1.2, .ranks_per_node = ranks_per_node});
  config.model.mixture.shared_expert_intermediate_size = shared_width;
  return config;
}

/// By the rows that are sent or received, whichever are more. What stays inside of a node takes no time.
double seconds_of_exchange(const CommRecord& record, int ranks_per_node) {
  const Group slow = ranks_per_node > 0 ? expert_across_group(4, ranks_per_node) : expert_group(4);
  const bool is_of_rows = record.kind == CommKind::all_to_all && record.group == slow;
  return is_of_rows ? static_cast<double>(record.num_elements * size_of(record.dtype)) : 0;
}

struct Times {
  double step = 0, compute = 0, exchange = 0, gradients = 0;  // these of wgate and wup, while dx goes back
  [[nodiscard]] double hidden() const { return compute + exchange - step; }
};

/// Of all passes of a kind, if a flop takes `seconds_per_flop` and a byte a second.
Times times_of(const RunConfig& config, ActionKind kind, double seconds_per_flop) {
  const Blueprint blueprint(config);
  const RankBlueprint rank = blueprint.rank(0);
  Times times;
  for (const Action& action : rank.program(ProgramKind::training)) {
    if (action.kind != kind) continue;
    const CallTrace& trace = rank.trace(ProgramKind::training).of(action);
    const CostEvents events =
        cost_events(trace, [&](const OpRecord& op) { return static_cast<double>(op.flops) * seconds_per_flop; });
    for (const OpRecord& op : trace.operations())
      if (op.kind == OpKind::grouped_matmul_backward_weight)
        times.gradients += static_cast<double>(op.flops) * seconds_per_flop * 2 / 3;
    times.step += events.seconds([&](const CommRecord& record) {
      const double seconds = seconds_of_exchange(record, static_cast<int>(config.parallelism.ranks_per_node));
      times.exchange += seconds;
      return seconds;
    });
    times.compute += ActionCost{events}.compute_seconds();
  }
  return times;
}

double flops_of(const RunConfig& config, ActionKind kind) { return times_of(config, kind, 1).compute; }

// At least 95 % of the shorter of both where they are equal, else 99 %: half of the shared expert's matmuls are
// computed during each of two transfers. Without one, weight gradients hide the second transfer of a backward pass.
TEST(ExpertOverlap, HidesTheSharedExpertOrTheExchange) {
  for (const int ranks_per_node : {0, 2})
    for (const ActionKind kind : {ActionKind::forward, ActionKind::backward}) {
      const RunConfig with = config_with(26, ranks_per_node), without = config_with(0, ranks_per_node);
      const double flops = flops_of(with, kind) - flops_of(without, kind), exchange = times_of(with, kind, 0).exchange;
      ASSERT_GT(flops, 0);
      ASSERT_GT(exchange, 0);
      for (const double ratio : {0.1, 0.5, 1.0, 2.0, 10.0}) {
        const double shared = ratio * exchange, seconds_per_flop = shared / flops;
        const double hidden = times_of(with, kind, seconds_per_flop).hidden(),
                     gradients = times_of(with, kind, seconds_per_flop).gradients,
                     hidden_without = times_of(without, kind, seconds_per_flop).hidden();
        SCOPED_TRACE(fmt::format("{}, {} ranks on a node, shared / exchange {}", name_of(kind), ranks_per_node, ratio));
        EXPECT_LE(hidden_without, gradients + 1e-9 * exchange);
        EXPECT_GE(hidden_without, std::min(gradients, exchange / 2) - 1e-9 * exchange);
        EXPECT_LE(hidden, std::min(shared + gradients, exchange) * (1 + 1e-9));
        RecordProperty(fmt::format("{}_{}_{}", name_of(kind), ranks_per_node, ratio),
                       fmt::format("{:.3f}", hidden / std::min(shared, exchange)));
        EXPECT_GE(hidden, std::min(shared, exchange) * (ratio == 1 ? 0.95 : 0.99));
      }
    }
}

// In forward, rows of one round come and those of another one go back while nothing is computed. In backward, those of
// x come so, and in round 0 those of dy.
TEST(ExpertOverlap, HidesFurtherRounds) {
  for (const double bound : {0.5, 0.25}) {
    RunConfig config = config_with(0, 0);
    config.moe.dispatch_bound = bound;
    const Times times = times_of(config, ActionKind::forward, 1e6);
    EXPECT_GE(times.hidden(), 0.499 * times.exchange) << bound;
    const Times backward = times_of(config, ActionKind::backward, 1e6);
    EXPECT_GE(backward.hidden(), 0.57 * backward.exchange) << bound;
  }
}

}  // namespace
}  // namespace echelon::testing
