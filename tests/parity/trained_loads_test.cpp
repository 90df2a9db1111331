// Experts over ranks with the loads of a trained router: a round or two, and what one rank computes.
#include "parity/trained_loads.h"
#include "parity/layout.h"
#include "parity/locks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace echelon::testing {
namespace {

constexpr int trained_ranks = 8;
constexpr std::int64_t trained_tokens = 256;

TEST(TrainedLoads, TakeAsFewRoundsAsTheyNeed) {
  double most_uneven = 0;
  for (const std::vector<std::int64_t>& loads : trained_loads()) {
    RunConfig config = config_of({.shard = trained_ranks, .microbatches = 1, .experts = 16, .ep = trained_ranks});
    config.model.num_hidden_layers = 1;
    config.model.mixture.num_experts_per_tok = 2;
    config.model.max_position_embeddings = config.training.seq_len = trained_tokens;
    config.training.micro_batch_size = 1;
    config.training.global_batch_size = trained_ranks;
    config.training.steps = config.lr_scheduler.warmup_steps = 1;
    const double uneven = largest_part(loads, trained_ranks), bound = config.moe.dispatch_bound;
    SCOPED_TRACE(fmt::format("largest load of a rank over the mean {}, bound {}", uneven, bound));
    most_uneven = std::max(most_uneven, uneven);
    const Interpose interpose = forced(choice_with(loads, trained_tokens), trained_tokens);
    const auto at_end = [&](const RankView& rank) {
      const ExpertTraffic& traffic = rank.run.step().expert_traffic(ProgramKind::training);
      ASSERT_GT(traffic.num_exchanges, 0);
      const double rounds = static_cast<double>(traffic.num_rounds) / static_cast<double>(traffic.num_exchanges);
      EXPECT_LE(rounds, std::ceil(uneven / bound) + 1);
      EXPECT_EQ(rounds, std::max(1.0, std::ceil(uneven / bound)));
    };
    const auto actual = run_training(config, {.interpose = interpose, .at_end = at_end});
    const auto expected = run_training(one_rank(config), {.interpose = interpose});
    expect_equal(*actual, *expected, 1e-11, 1e-9, config.optimizer.lr);
  }
  EXPECT_GT(most_uneven, 1.2);
  EXPECT_LT(most_uneven, 1.6);
}

}  // namespace
}  // namespace echelon::testing
