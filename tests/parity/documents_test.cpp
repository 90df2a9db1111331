// Attention within documents: what stands in another document changes nothing.
#include "blueprint/balanced_batch.h"
#include "parity/layout.h"
#include "parity/training_run.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace echelon::testing {
namespace {

/// Three documents in each sequence. The first one's tokens are `first` and those behind it; targets of the others
/// alone count.
class ThreeDocuments final : public BatchSource {
 public:
  explicit ThreeDocuments(std::int32_t first) : first_(first) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    for (std::int64_t i = 0; i < seq_len; ++i) {
      tokens[i] = static_cast<std::int32_t>(i < begin ? first_ + i : (sequence * 7 + i * i) % 61);
      targets[i] = i < begin ? ignored_target : static_cast<std::int32_t>((sequence + 3 * i) % 61);
    }
  }
  void read_document_starts(std::int64_t /*sequence*/, std::int64_t seq_len, std::int32_t* starts) const override {
    for (std::int64_t i = 0; i < seq_len; ++i) starts[i] = i < begin ? 0 : i < 9 ? begin : 9;
  }

 private:
  static constexpr std::int32_t begin = 5;
  std::int32_t first_;
};

class FirstStep final : public RunObserver {
 public:
  void has_gradients(const RankView& rank, std::int64_t /*step*/, double factor) override {
    gradients.add_gradients(rank.run.model(), rank.ops, factor);
  }
  void ended_step(const RankView& rank, std::int64_t /*step*/, const StepResult& result) override {
    if (rank.mesh.rank() == 0) loss = result.loss;
  }
  TensorCollection gradients;
  double loss = 0;
};

void run_first_step(const RunConfig& config, const BatchSource& batches, FirstStep& outcome) {
  run_layout({.blueprint = Blueprint(config), .batches = batches}, outcome);
}

void expect_separate_documents(RunConfig config) {
  FirstStep of_one, of_other;
  run_first_step(config, ThreeDocuments(3), of_one);
  run_first_step(config, ThreeDocuments(40), of_other);
  EXPECT_EQ(of_one.loss, of_other.loss);
  EXPECT_EQ(worst_difference(of_one.gradients, of_other.gradients, 1).error, 0);
  config.data.reset_attention_mask = false;
  config.parallelism.context_parallel_load_balancer = LoadBalancer::headtail;  // which goes with that
  FirstStep seen_from_one, seen_from_other;
  run_first_step(config, ThreeDocuments(3), seen_from_one);
  run_first_step(config, ThreeDocuments(40), seen_from_other);
  EXPECT_GT(std::abs(seen_from_one.loss - seen_from_other.loss), 1e-4);
}

// Claim (reference): With attention within documents (block-diagonal masks), 20 steps give
//   PyTorch's losses, and one document changes no bit of another's loss and gradients.
// Bound: 1e-9 in float64; identical bits.
// Tests: Documents
TEST(Documents, DoNotSeeEachOther) {
  using enum ContextMethod;
  expect_separate_documents(config_of({.tp = 2, .pp = 2, .microbatches = 2, .documents = true}));
  for (const Family family : {Family::llama, Family::gpt2}) {
    const Layout positions = {.microbatches = 2, .family = family, .documents = true, .positions = true};
    expect_separate_documents(config_of(positions));
    for (const ContextMethod method : {ring, all_gather, ulysses, ulysses_ring})
      for (const LoadBalancer balancer : load_balancers) {
        Layout layout = positions;
        layout.cp = 4;
        layout.balancer = balancer;
        layout.method = method;
        layout.ulysses = method == ulysses_ring ? 2 : 0;
        SCOPED_TRACE(name_of(layout));
        expect_separate_documents(config_of(layout));
      }
  }
}

/// What one document computes: its tokens are the same, others of as many tokens stand before or after it.
class MovedDocument final : public BatchSource {
 public:
  explicit MovedDocument(std::int32_t first) : first_(first) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    for (std::int64_t i = 0; i < seq_len; ++i) {
      const std::int64_t in_it = i - first_;
      const bool is_it = in_it >= 0 && in_it < length;
      tokens[i] = static_cast<std::int32_t>(is_it ? (sequence * 7 + in_it * in_it) % 61 : 5 * i % 61);
      targets[i] =
          is_it && in_it + 1 < length ? static_cast<std::int32_t>((sequence + 3 * in_it) % 61) : ignored_target;
    }
  }
  void read_document_starts(std::int64_t /*sequence*/, std::int64_t seq_len, std::int32_t* starts) const override {
    for (std::int64_t i = 0; i < seq_len; ++i)
      starts[i] = i < first_ ? 0 : i < first_ + length ? first_ : first_ + length;
  }

 private:
  static constexpr std::int32_t length = 7;
  std::int32_t first_;
};

// With positions that restart, a document gives the same loss and gradients wherever it is in its sequence. Without
// them it does not where positions are learned.
TEST(Documents, ComputeTheSameWhereverTheyAre) {
  for (const Family family : {Family::llama, Family::gpt2})
    for (const LoadBalancer balancer : load_balancers) {
      Layout layout = {.microbatches = 2, .family = family, .documents = true, .positions = true};
      layout.cp = 4;
      layout.balancer = balancer;
      SCOPED_TRACE(name_of(layout));
      RunConfig config = config_of(layout);
      FirstStep at_start, later, without_positions;
      run_first_step(config, MovedDocument(0), at_start);
      run_first_step(config, MovedDocument(5), later);
      EXPECT_NEAR(at_start.loss, later.loss, 1e-12);
      EXPECT_LE(worst_difference(at_start.gradients, later.gradients, 1e-2).error, 1e-10);
      if (family == Family::llama) continue;  // whose attention depends on differences of positions alone
      config.data.reset_position_ids = false;
      run_first_step(config, MovedDocument(5), without_positions);
      EXPECT_GT(std::abs(at_start.loss - without_positions.loss), 1e-4);
    }
}

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

TEST(Documents, SharesOfPairsAreThoseOfTheBatch) {
  Layout layout = {.replicate = 4, .microbatches = 2, .documents = true, .seq_len = 48};
  EXPECT_FALSE(shares_of(config_of(layout)).of_replicas);
  layout.balance = true;
  const double in_order = largest_over_mean(pairs_of_replicas(config_of(layout)));
  EXPECT_GT(in_order, 1.2);
  EXPECT_LT(shares_of(config_of(layout)).of_replicas.value(), 1 + (in_order - 1) / 2);
  EXPECT_FALSE(shares_of(config_of(layout)).of_cp_ranks);

  layout = {.microbatches = 4, .documents = true, .cp = 4, .balancer = LoadBalancer::none, .seq_len = 48};
  const double of_chunks = shares_of(config_of(layout)).of_cp_ranks.value();
  layout.balancer = LoadBalancer::packed;
  const double of_packed = shares_of(config_of(layout)).of_cp_ranks.value();
  EXPECT_GT(of_chunks, 1.2);
  EXPECT_LT(of_packed, 1.1);
  EXPECT_GE(of_packed, 1);

  // Ranks that exchange heads have the same queries.
  layout.balancer = LoadBalancer::none;
  layout.method = ContextMethod::ulysses_ring;
  layout.ulysses = 2;
  const double of_groups = shares_of(config_of(layout)).of_cp_ranks.value();
  EXPECT_GT(of_groups, 1);
  EXPECT_LT(of_groups, of_chunks);
  layout.ulysses = 4;
  EXPECT_FALSE(shares_of(config_of(layout)).of_cp_ranks);
}

}  // namespace
}  // namespace echelon::testing
