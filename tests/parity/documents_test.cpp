// Attention within documents: what stands in another document changes nothing.
#include "parity/layout.h"
#include "parity/training_run.h"

#include <gtest/gtest.h>

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

/// Relative to the loss, and to 1 or the largest gradient of a tensor.
struct DocumentErrors {
  double loss = 0, gradient = 0;
};
DocumentErrors errors_of_another_document(const RunConfig& config) {
  FirstStep of_one, of_other;
  run_first_step(config, ThreeDocuments(3), of_one);
  run_first_step(config, ThreeDocuments(40), of_other);
  return {std::abs(of_one.loss - of_other.loss) / of_one.loss,
          worst_difference(of_one.gradients, of_other.gradients, 1).error};
}

void expect_separate_documents(RunConfig config) {
  const DocumentErrors errors = errors_of_another_document(config);
  EXPECT_EQ(errors.loss, 0);
  EXPECT_EQ(errors.gradient, 0);
  config.data.reset_attention_mask = false;
  config.parallelism.context_parallel_load_balancer = LoadBalancer::headtail;  // which goes with that
  EXPECT_GT(errors_of_another_document(config).loss, 1e-5);
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

// Of a mixture, without losses of routers and a capacity. Both join the documents of a sequence. How many rows an
// expert has depends on both documents: its sums over rows are in parts by it, and on some processors OpenBLAS's
// float64 kernels round each row by it.
TEST(Documents, DoNotSeeEachOtherByExperts) {
  const Layout layouts[] = {{.microbatches = 2, .documents = true, .experts = 5},
                            {.shard = 2, .documents = true, .experts = 4, .ep = 2, .bound = 0.4},
                            {.shard = 2, .documents = true, .cp = 2, .experts = 8, .ep = 4},
                            {.tp = 2, .sequence_parallel = true, .documents = true, .experts = 6, .ep = 2}};
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(name_of(layout));
    RunConfig config = config_of(layout);
    const DocumentErrors apart = errors_of_another_document(config);
    EXPECT_LE(apart.loss, 1e-14);
    EXPECT_LE(apart.gradient, 1e-14);
    config.moe.seq_aux_loss_coeff = 0.1;
    const DocumentErrors joined_by_loss = errors_of_another_document(config);
    EXPECT_LE(joined_by_loss.loss, 1e-14) << "the loss of a step is the cross entropy alone";
    EXPECT_GT(joined_by_loss.gradient, 1e-5);
    config.moe = {.capacity_factor = 0.5};
    EXPECT_GT(errors_of_another_document(config).loss, 1e-4);
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

}  // namespace
}  // namespace echelon::testing
