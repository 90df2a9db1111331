// What evens out the loads of experts: without it a few take most rows, as in benchmarks/mixtures/run.
#include "train/train.h"

#include "blueprint/small_config.h"
#include "checkpoint/scratch_folder.h"
#include "data/indexed_dataset.h"
#include "train/report_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

constexpr int last_steps = 10;  // whose loads count

class BalancedLoads : public ::testing::Test {
 protected:
  // Tokens that follow each other by a rule, low ones more often.
  void SetUp() override {
    IndexedDatasetWriter writer((scratch_ / "tokens").string(), TokenType::u16);
    std::vector<std::int32_t> tokens;
    constexpr std::int64_t count = 65536, odd_factor = 40503;
    for (std::int64_t i = 0; i < count; ++i) {
      const double u = static_cast<double>(i * odd_factor % count) / count;
      tokens.push_back(static_cast<std::int32_t>(128 * u * u));
    }
    writer.add_document(tokens);
    writer.publish();
  }

  /// Sixteen experts with the router of DeepSeek-V3, two for a token.
  RunConfig config(const MoeConfig& moe) const {
    RunConfig config = testing::small_config();
    config.model.family = Family::dots1;
    config.model.mixture = family_defaults(Family::dots1).mixture;
    config.model.qk_norm = true;
    config.model.num_hidden_layers = 2;
    config.model.mixture.num_experts = 16;
    config.model.mixture.num_experts_per_tok = 2;
    config.model.mixture.moe_intermediate_size = 16;
    config.model.mixture.shared_expert_intermediate_size = 16;
    config.model.mixture.norm_topk_prob = true;
    config.moe = moe;
    config.data.path = (scratch_ / "tokens").string();
    config.output.dir = (scratch_ / "out").string();
    config.training.steps = 100;
    config.training.global_batch_size = 64;
    config.training.micro_batch_size = config.training.global_batch_size;
    config.optimizer.lr = 1e-2;
    config.lr_scheduler.warmup_steps = 10;
    config.checkpoint.enable = false;
    return config;
  }

  /// Of the most loaded expert of any layer over the mean one, in the last steps.
  double most_load(const MoeConfig& moe) const {
    testing::ReportLog log;
    (void)train(config(moe), {.observer = &log});
    double sum = 0;
    for (auto step = log.steps.end() - last_steps; step != log.steps.end(); ++step)
      sum += *std::ranges::max_element(step->moe.value().max_load);
    return sum / last_steps;
  }

  ScratchFolder scratch_;
};

// A step of the bias as large as 0.03 would swing around even loads.
TEST_F(BalancedLoads, ByTheBiasOrTheLossOfSequences) {
  EXPECT_GT(most_load({}), 1.7);
  EXPECT_LT(most_load({.bias_update_rate = 0.01}), 1.5);
  EXPECT_LT(most_load({.seq_aux_loss_coeff = 0.5}), 1.5);
}

}  // namespace
}  // namespace echelon
