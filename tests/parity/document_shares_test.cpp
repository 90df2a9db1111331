// Which share of the pairs (query, key) each replica and cp rank has.
#include "blueprint/balanced_batch.h"
#include "context/documents.h"
#include "parity/layout.h"
#include "parity/training_run.h"

#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

/// Pairs of each replica in the order of the data: every token sees the tokens of its document up to itself.
std::vector<std::int64_t> pairs_of_replicas(const RunConfig& config) {
  const FormulaBatches batches(config, Targets::unequal);
  const BatchLayout layout(config);
  const auto T = static_cast<std::size_t>(config.training.seq_len);
  std::vector<std::int64_t> pairs(static_cast<std::size_t>(layout.num_replicas()));
  std::vector<std::int32_t> starts(T);
  for (std::int64_t sequence = 0; sequence < config.training.global_batch_size; ++sequence) {
    batches.read_document_starts(sequence, config.training.seq_len, starts.data());
    for (std::size_t i = 0; i < T; ++i)
      pairs[static_cast<std::size_t>(layout.place_of(sequence).replica)] +=
          static_cast<std::int64_t>(i) - starts[i] + 1;
  }
  return pairs;
}

PairShares shares_of(RunConfig config) {
  PairShares shares;
  config.training.steps = config.lr_scheduler.warmup_steps = 1;
  (void)run_training(config, {.after_step = [&](const RankView& rank, std::int64_t /*step*/) {
                       if (rank.mesh.rank() == 0) shares = rank.run.step().pair_shares();
                     }});
  return shares;
}

TEST(DocumentShares, OfPairsAreThoseOfTheBatch) {
  Layout layout = {.replicate = 4, .microbatches = 2, .documents = true, .seq_len = 48};
  const double in_order = largest_over_mean(pairs_of_replicas(config_of(layout)));
  EXPECT_GT(in_order, 1.2);
  EXPECT_DOUBLE_EQ(shares_of(config_of(layout)).of_replicas.value(), in_order);
  EXPECT_FALSE(shares_of(config_of({.replicate = 4, .seq_len = 48})).of_replicas);
  EXPECT_FALSE(shares_of(config_of({.microbatches = 4, .documents = true, .seq_len = 48})).of_replicas);
  const Layout of_both = {.shard = 2, .microbatches = 2, .documents = true, .cp = 2, .seq_len = 48};
  EXPECT_DOUBLE_EQ(shares_of(config_of(of_both)).of_replicas.value(),
                   largest_over_mean(pairs_of_replicas(config_of(of_both))));
  layout.balance = true;
  EXPECT_LT(shares_of(config_of(layout)).of_replicas.value(), 1 + (in_order - 1) / 2);
  EXPECT_FALSE(shares_of(config_of(layout)).of_cp_ranks);

  EXPECT_EQ(shares_of(config_of({.microbatches = 4, .seq_len = 48})).of_whole, 1);
  const std::int64_t pairs =
      pairs_of_replicas(config_of({.microbatches = 4, .documents = true, .seq_len = 48})).front();
  const double left = static_cast<double>(pairs) /
                      static_cast<double>(config_of({.microbatches = 4, .seq_len = 48}).training.global_batch_size *
                                          num_document_pairs(48, 0));
  EXPECT_DOUBLE_EQ(shares_of(config_of({.microbatches = 4, .documents = true, .seq_len = 48})).of_whole, left);
  layout = {.microbatches = 4, .documents = true, .cp = 4, .balancer = LoadBalancer::none, .seq_len = 48};
  EXPECT_NEAR(shares_of(config_of(layout)).of_whole, left, 1e-12);
  const double of_chunks = shares_of(config_of(layout)).of_cp_ranks.value();
  layout.balancer = LoadBalancer::packed;
  const double of_packed = shares_of(config_of(layout)).of_cp_ranks.value();
  EXPECT_NEAR(shares_of(config_of(layout)).of_whole, left, 1e-12);
  EXPECT_GT(of_chunks, 1.2);
  EXPECT_LT(of_packed, 1.1);
  EXPECT_GE(of_packed, 1);

  // Ranks that exchange heads have the same queries.
  layout.balancer = LoadBalancer::none;
  layout.method = ContextMethod::ulysses_ring;
  layout.ulysses = 2;
  EXPECT_NEAR(shares_of(config_of(layout)).of_whole, left, 1e-12);
  const double of_groups = shares_of(config_of(layout)).of_cp_ranks.value();
  EXPECT_GT(of_groups, 1);
  EXPECT_LT(of_groups, of_chunks);
  layout.ulysses = 4;
  EXPECT_FALSE(shares_of(config_of(layout)).of_cp_ranks);
}

}  // namespace
}  // namespace echelon::testing
