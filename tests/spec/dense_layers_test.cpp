// A family with mixtures of experts, in a model whose layers are all dense: nothing of experts is for it.
#include "base/error.h"
#include "spec/config/run_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon {
namespace {

RunConfig dense_run(const std::vector<std::int64_t>& mlp_only_layers, std::int64_t decoder_sparse_step) {
  RunConfig config;
  config.model = preset("qwen3-30b-a3b");
  config.model.num_hidden_layers = 2;
  config.model.mixture.mlp_only_layers = mlp_only_layers;
  config.model.mixture.decoder_sparse_step = decoder_sparse_step;
  config.training.global_batch_size = 8;
  config.parallelism.data_parallel_shard_degree = 4;
  return config;
}

struct KeyOfExperts {
  const char* sentence;
  void (*set)(RunConfig&);
};

const KeyOfExperts keys_of_experts[] = {
    {"moe.seq_aux_loss_coeff = 0.1 is for", [](RunConfig& c) { c.moe.seq_aux_loss_coeff = 0.1; }},
    {"moe.global_aux_loss_coeff = 0.1 is for", [](RunConfig& c) { c.moe.global_aux_loss_coeff = 0.1; }},
    {"moe.z_loss_coeff = 0.1 is for", [](RunConfig& c) { c.moe.z_loss_coeff = 0.1; }},
    {"moe.bias_update_rate = 0.1 is for", [](RunConfig& c) { c.moe.bias_update_rate = 0.1; }},
    {"moe.dispatch_bound = 2 is for", [](RunConfig& c) { c.moe.dispatch_bound = 2; }},
    {"moe.capacity_factor = 1 is for", [](RunConfig& c) { c.moe.capacity_factor = 1; }},
    {"moe.freeze_router = true is for", [](RunConfig& c) { c.moe.freeze_router = true; }},
    {"moe.force_balance = true is for", [](RunConfig& c) { c.moe.force_balance = true; }},
    {"metrics.expert_loads = true is for", [](RunConfig& c) { c.metrics.expert_loads = true; }},
    {"training.recompute = 'experts' is a part of a mixture",
     [](RunConfig& c) { c.training.recompute = {BlockOperation::experts}; }},
    {"parallelism.expert_parallel_degree = 4 divides experts, and the model has none (use 1)",
     [](RunConfig& c) { c.parallelism.expert_parallel_degree = 4; }},
    {"parallelism.expert_tensor_parallel_degree = 2 divides experts, and the model has none (use 0)",
     [](RunConfig& c) { c.parallelism.expert_tensor_parallel_degree = 2; }},
    {"parallelism.expert_dispatch = 'direct' is for",
     [](RunConfig& c) { c.parallelism.expert_dispatch = ExpertDispatch::direct; }},
};

TEST(DenseLayers, OfAFamilyWithMixturesTakeNoKeysOfExperts) {
  for (const auto& [mlp_only_layers, step] : {std::pair{std::vector<std::int64_t>{0, 1}, 1}, {{}, 3}}) {
    const RunConfig dense = dense_run(mlp_only_layers, step);
    EXPECT_FALSE(dense.model.has_experts());
    EXPECT_NO_THROW(validate(dense));
    for (const auto& [sentence, set] : keys_of_experts) {
      RunConfig config = dense;
      set(config);
      EXPECT_THAT([&] { validate(config); }, ::testing::ThrowsMessage<Error>(::testing::HasSubstr(sentence)));
    }
  }
}

// One layer with experts is enough.
TEST(DenseLayers, NextToOneWithExpertsLeaveThemTheirKeys) {
  for (const auto& [mlp_only_layers, step] : {std::pair{std::vector<std::int64_t>{0}, 1}, {{}, 2}}) {
    RunConfig config = dense_run(mlp_only_layers, step);
    config.moe.seq_aux_loss_coeff = 0.1;
    config.parallelism.expert_parallel_degree = 4;
    EXPECT_TRUE(config.model.has_experts());
    EXPECT_NO_THROW(validate(config));
  }
}

}  // namespace
}  // namespace echelon
