// Experts on several ranks when tokens are spread over them as badly as can be: nothing is dropped, loads cost rounds,
// and memory does not know them.
#include "parity/forced_router.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "spec/groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace echelon::testing {
namespace {

constexpr std::int64_t num_experts = 8, seq_len = 12;

struct ForcedRouter {
  const char* name;
  std::int64_t experts_per_token;
  Choice choice;
  double most_received;  // rows of the rank with the most, of as many as one rank sends
};

class Adversarial : public ::testing::TestWithParam<ForcedRouter> {};

// Claim (parity): A mixture computes what one rank computes however uneven its loads are: all tokens
//   at one expert, all at one rank's, none at an expert. It then takes more rounds, and no more
//   memory.
// Bound: 4 ranks, bounds of a round from a quarter of a rank's rows up to all that could come: parity's bounds; planned
//   bytes equal; rounds as many as the rows need.
// Tests: Adversarial
TEST_P(Adversarial, EqualsOneRankInAsManyRoundsAsRowsNeed) {
  const auto& [name, k, choice, most_received] = GetParam();
  std::unique_ptr<Trajectory> expected;
  for (const double bound : {0.25, 1.0, 1.2, 100.0}) {
    RunConfig config = config_of({.shard = 4, .zero = 2, .experts = num_experts, .router_losses = true, .ep = 4});
    config.model.mixture.num_experts_per_tok = k;
    config.moe.dispatch_bound = bound;
    config.training.steps = 3;
    ASSERT_EQ(config.training.seq_len, seq_len);
    if (!expected) expected = run_training(one_rank(config), {.interpose = forced(choice, seq_len)});
    const auto actual = run_training(
        config, {.interpose = forced(choice, seq_len), .at_end = [&, most = most_received](const RankView& rank) {
                   expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
                   const ExpertTraffic& traffic = rank.run.step().expert_traffic(ProgramKind::training);
                   const double rounds = std::max(1.0, std::ceil(most / std::min(bound, 4.0)));
                   EXPECT_EQ(static_cast<double>(traffic.num_rounds),
                             rounds * static_cast<double>(traffic.num_exchanges));
                 }});
    SCOPED_TRACE(fmt::format("{} with a bound of {}", name, bound));
    expect_equal(*actual, *expected, 1e-11, 1e-9, config.optimizer.lr);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Routers, Adversarial,
    ::testing::Values(
        ForcedRouter{"one_expert", 1, [](std::int64_t, std::int64_t) { return 5; }, 4},
        ForcedRouter{"one_rank", 2, [](std::int64_t, std::int64_t j) { return static_cast<int>(2 + j); }, 4},
        ForcedRouter{"none_at_one", 2, [](std::int64_t n, std::int64_t j) { return static_cast<int>((2 * n + j) % 7); },
                     4.0 / 3}),
    [](const ::testing::TestParamInfo<ForcedRouter>& test) { return test.param.name; });

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
