// Attention within documents: what stands in another document changes nothing.
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
  expect_separate_documents(config_of({.tp = 2, .pp = 2, .microbatches = 2, .documents = true}));
  for (const LoadBalancer balancer : {LoadBalancer::headtail, LoadBalancer::none, LoadBalancer::striped})
    expect_separate_documents(config_of({.microbatches = 2, .documents = true, .cp = 3, .balancer = balancer}));
}

}  // namespace
}  // namespace echelon::testing
