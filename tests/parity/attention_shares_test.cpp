// What a prediction takes from the documents of a batch, against what each rank computes for it.
#include "train/data/attention_shares.h"

#include "context/brute_force.h"
#include "engine/batch/rank_batch.h"
#include "parity/layout.h"

#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

/// Documents of drawn lengths; tokens are all the same.
class DrawnLengths final : public BatchSource {
 public:
  void read(std::int64_t /*sequence*/, std::int64_t seq_len, std::int32_t* tokens,
            std::int32_t* targets) const override {
    std::fill_n(tokens, seq_len, 1);
    std::fill_n(targets, seq_len, 1);
  }
  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override {
    const DocumentOffsets documents = drawn_documents(seq_len, static_cast<unsigned>(sequence) + 3);
    for (std::int32_t i = 0; i < seq_len; ++i) starts[i] = start_of(i, documents);
  }
};

std::vector<double> shares_of_batches(const RunConfig& config, const BatchSource& source, std::int64_t num_batches) {
  const Blueprint blueprint(config);
  std::vector<double> shares;
  for (int rank = 0; rank < blueprint.mesh().num_ranks(); ++rank) {
    const RankBlueprint of_rank = blueprint.rank(rank);
    RankBatch batch(config, of_rank.part(), rank);
    std::int64_t pairs = 0, planned = 0;
    for (std::int64_t i = 0; i < num_batches; ++i) {
      batch.read(source, i * config.training.global_batch_size);
      pairs += batch.pairs().num_pairs();
      planned += batch.pairs().num_planned_pairs();
    }
    shares.push_back(static_cast<double>(pairs) / static_cast<double>(planned));
  }
  return shares;
}

TEST(AttentionShares, AreThoseOfTheBatchesOfEachRank) {
  const DrawnLengths source;
  for (Layout layout : {Layout{.microbatches = 2, .documents = true},
                        Layout{.replicate = 2, .microbatches = 2, .documents = true, .balance = true},
                        Layout{.shard = 2, .microbatches = 2, .documents = true, .cp = 3},
                        Layout{.microbatches = 2, .documents = true, .cp = 4, .balancer = LoadBalancer::packed},
                        Layout{.microbatches = 2, .family = Family::mistral, .documents = true, .cp = 2, .window = 5},
                        Layout{.microbatches = 2, .family = Family::qwen2, .documents = true, .window = 4}}) {
    layout.seq_len = 24;
    const RunConfig config = config_of(layout);
    SCOPED_TRACE(name_of(layout));
    const std::vector<double> shares = attention_shares(config, source, 3),
                              expected = shares_of_batches(config, source, 3);
    ASSERT_EQ(shares.size(), expected.size());
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      EXPECT_DOUBLE_EQ(shares[rank], expected[rank]) << "rank " << rank;
      EXPECT_LT(shares[rank], 1);
    }
  }
}

// Heads that ranks exchange: each has the queries of all, and a part of their heads.
TEST(AttentionShares, OfRanksThatExchangeHeads) {
  const DrawnLengths source;
  for (const ContextMethod method : {ContextMethod::ulysses, ContextMethod::ulysses_ring, ContextMethod::all_gather}) {
    Layout layout = {.microbatches = 2, .documents = true, .cp = method == ContextMethod::ulysses_ring ? 4 : 2};
    layout.method = method;
    layout.ulysses = method == ContextMethod::ulysses_ring ? 2 : 0;
    const RunConfig config = config_of(layout);
    SCOPED_TRACE(name_of(layout));
    EXPECT_EQ(attention_shares(config, source, 2), shares_of_batches(config, source, 2));
  }
}

}  // namespace
}  // namespace echelon::testing
