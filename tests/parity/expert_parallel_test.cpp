// What an exchange of rows between the ranks of experts costs: bytes that are sent, and memory.
#include "parity/forced_router.h"
#include "parity/layout.h"
#include "spec/groups.h"

#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

constexpr std::int64_t num_experts = 8, seq_len = 12;

// Claim (plans): An exchange of rows sends (P - 1) / P of R rows there and back with P ranks and even
//   loads, forward as well as backward.
// Bound: bytes equal, in the plan and as counted.
// Tests: ExpertTraffic
TEST(ExpertTraffic, IsTheClosedForm) {
  for (const int ep : {2, 4, 8}) {
    RunConfig config = config_of({.shard = 8, .layers = 2, .experts = num_experts, .ep = ep, .bound = 1});
    config.training.steps = config.lr_scheduler.warmup_steps = 2;
    const std::int64_t P = ep, rows = config.training.micro_batch_size * seq_len * 2, moved = rows * (P - 1) / P,
                       D = config.model.hidden_size * 8, weight = 8, offsets = (P - 1) * (num_experts + 1) * 4;
    const auto even = [](std::int64_t n, std::int64_t j) {
      return static_cast<std::int32_t>((2 * n + j) % num_experts);
    };
    const auto at_end = [&](const RankView& rank) {
      for (const ProgramKind kind : {ProgramKind::training, ProgramKind::evaluation}) {
        std::int64_t planned = 0, forwards = 0;  // of a layer and microbatch
        for (const Action& action : rank.run.blueprint().program(kind)) {
          forwards += action.kind == ActionKind::forward ? 2 : 0;
          for (const CommRecord& comm : rank.run.blueprint().trace(kind).of(action).communications())
            if (comm.group == expert_group(ep)) planned += comm.sent_bytes;
        }
        EXPECT_GT(forwards, 0);
        const std::int64_t backwards = kind == ProgramKind::training ? forwards : 0;
        // x there with weights and y back; dy there, and dx back with the gradients of weights
        EXPECT_EQ(planned, forwards * (offsets + moved * (2 * D + weight)) + backwards * moved * (2 * D + weight));
        const ExpertTraffic& traffic = rank.run.step().expert_traffic(kind);
        EXPECT_EQ(traffic.sent_bytes, traffic.planned_sent_bytes);
        EXPECT_GT(traffic.sent_bytes, 0);
      }
    };
    (void)run_training(config, {.interpose = forced(even, seq_len), .at_end = at_end});
  }
}

// Memory is a function of the bound alone, and grows with it up to all rows that could come.
TEST(DispatchBound, DecidesMemory) {
  std::int64_t before = 0;
  for (const double bound : {0.5, 1.0, 2.0, 4.0}) {
    const Blueprint blueprint(config_of({.shard = 4, .experts = num_experts, .ep = 4, .bound = bound}));
    EXPECT_GT(blueprint.rank(0).arena_bytes(), before) << bound;
    before = blueprint.rank(0).arena_bytes();
  }
  const Blueprint blueprint(config_of({.shard = 4, .experts = num_experts, .ep = 4, .bound = 100}));
  EXPECT_EQ(blueprint.rank(0).arena_bytes(), before);
}

}  // namespace
}  // namespace echelon::testing
