// Which layers of mixtures may have adapters, as PEFT's target_modules and modules_to_save name them, and what is
// refused.
#include "base/error.h"
#include "spec/config/model_flops.h"
#include "spec/lora/linear_layers.h"
#include "spec/lora/lora_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace echelon {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

LoraConfig lora_of(std::vector<std::string> targets, std::vector<std::string> saved = {}) {
  LoraConfig lora;
  lora.rank = 4;
  lora.target_modules = std::move(targets);
  lora.modules_to_save = std::move(saved);
  return lora;
}

/// Two of three layers have experts.
ModelSpec qwen2_moe() {
  ModelSpec model = preset("olmoe-1b-7b");
  const ModelSpec family = family_defaults(Family::qwen2_moe);
  model.family = Family::qwen2_moe;
  model.qk_norm = model.qk_norm_of_projection = false;
  model.qkv_bias = true;
  model.set_num_layers(3);
  model.intermediate_size = 96;
  model.mixture.moe_intermediate_size = 64;
  model.mixture.shared_expert_intermediate_size = 80;
  model.mixture.gates_shared_expert = family.mixture.gates_shared_expert;
  model.mixture.mlp_only_layers = {1};
  return model;
}

std::string complaint_about(const ModelSpec& model, const LoraConfig& lora) {
  try {
    validate(lora, model);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(MixtureLora, AllLinearIsAttentionTheSharedExpertAndDenseLayers) {
  EXPECT_THAT(adapted_modules(lora_of({"all-linear"}), qwen2_moe()),
              ElementsAre("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                          "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "mlp.shared_expert.gate_proj",
                          "mlp.shared_expert.up_proj", "mlp.shared_expert.down_proj"));
  for (const char* no_shared_expert : {"mixtral-8x7b", "olmoe-1b-7b", "qwen3-30b-a3b"})
    EXPECT_THAT(adapted_modules(lora_of({"all-linear"}), preset(no_shared_expert)),
                ElementsAre("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"));
  const std::vector<std::string_view> rest = {"self_attn.kv_a_proj_with_mqa",
                                              "self_attn.kv_b_proj",
                                              "self_attn.o_proj",
                                              "mlp.gate_proj",
                                              "mlp.up_proj",
                                              "mlp.down_proj",
                                              "mlp.shared_experts.gate_proj",
                                              "mlp.shared_experts.up_proj",
                                              "mlp.shared_experts.down_proj"};
  for (const auto& [name, queries] : {std::pair<const char*, std::vector<std::string_view>>{
                                          "deepseek-v3", {"self_attn.q_a_proj", "self_attn.q_b_proj"}},
                                      {"deepseek-v2-lite", {"self_attn.q_proj"}}}) {
    std::vector<std::string_view> expected = queries;
    expected.insert(expected.end(), rest.begin(), rest.end());
    EXPECT_THAT(adapted_modules(lora_of({"all-linear"}), preset(name)), ElementsAreArray(expected)) << name;
  }
}

// r (in + out) of each module; of each layer those that it has.
TEST(MixtureLora, AdaptersAreInTheLayersThatHaveTheModule) {
  const ModelSpec model = qwen2_moe();
  std::set<std::string> names;
  std::int64_t count = 0;
  for (const NamedShape& each : adapter_parameters(model, lora_of({"all-linear"}))) {
    names.insert(each.name);
    count += each.sizes.num_elements();
  }
  EXPECT_TRUE(names.contains("model.layers.0.mlp.shared_expert.up_proj.lora_A.weight"));
  EXPECT_FALSE(names.contains("model.layers.0.mlp.up_proj.lora_A.weight"));
  EXPECT_TRUE(names.contains("model.layers.1.mlp.up_proj.lora_A.weight"));
  EXPECT_FALSE(names.contains("model.layers.1.mlp.shared_expert.up_proj.lora_A.weight"));
  const std::int64_t D = model.hidden_size, Q = model.num_attention_heads * model.head_dim,
                     K = model.num_key_value_heads * model.head_dim;
  EXPECT_EQ(count, 4 * (3 * (2 * (D + Q) + 2 * (D + K)) + 2 * 3 * (D + 80) + 3 * (D + 96)));
  EXPECT_TRUE(has_module(model, 0, "mlp.shared_expert"));
  EXPECT_FALSE(has_module(model, 1, "mlp.shared_expert"));
  EXPECT_TRUE(has_module(model, 1, "mlp.up_proj"));
  EXPECT_FALSE(has_module(model, 2, "mlp.up_proj"));
  EXPECT_TRUE(has_module(model, 2, "mlp"));
  EXPECT_FALSE(has_module(model, 2, "ml"));
}

// transformers has all routed experts of a layer in one module, so up_proj is that of MLPs and shared experts.
TEST(MixtureLora, NamesAreThoseOfModules) {
  const ModelSpec qwen = qwen2_moe(), deepseek = preset("deepseek-v3");
  EXPECT_THAT(adapted_modules(lora_of({"up_proj"}), qwen), ElementsAre("mlp.up_proj", "mlp.shared_expert.up_proj"));
  EXPECT_THAT(adapted_modules(lora_of({"shared_expert.up_proj"}), qwen), ElementsAre("mlp.shared_expert.up_proj"));
  EXPECT_THAT(adapted_modules(lora_of({"mlp.up_proj"}), qwen), ElementsAre("mlp.up_proj"));
  EXPECT_THAT(adapted_modules(lora_of({"shared_experts.down_proj", "kv_a_proj_with_mqa"}), deepseek),
              ElementsAre("self_attn.kv_a_proj_with_mqa", "mlp.shared_experts.down_proj"));
  // Files of PEFT may also be read where routed experts are modules of their own.
  EXPECT_THAT(names_of(adapted_modules(lora_of({"o_proj", "up_proj"}), qwen), qwen),
              ElementsAre("o_proj", "mlp.up_proj", "mlp.shared_expert.up_proj"));
}

TEST(MixtureLora, RefusesRoutedExpertsAndRoutersByName) {
  const ModelSpec qwen = qwen2_moe(), mixtral = preset("mixtral-8x7b"), deepseek = preset("deepseek-v3"),
                  olmoe = preset("olmoe-1b-7b");
  const auto refusal = [](const ModelSpec& model, const char* target) {
    return complaint_about(model, lora_of({"o_proj", target}));
  };
  EXPECT_EQ(refusal(qwen, "gate"),
            "lora.target_modules = 'gate' is the router of qwen2_moe, and has no adapter (use 'gate_proj')");
  EXPECT_EQ(
      refusal(qwen, "shared_expert_gate"),
      "lora.target_modules = 'shared_expert_gate' is the shared expert's gate of qwen2_moe, and has no adapter (use "
      "'gate_proj')");
  EXPECT_EQ(refusal(qwen, "experts.up_proj"),
            "lora.target_modules = 'experts.up_proj' is a part of the routed experts of qwen2_moe, and has no adapter "
            "(use 'up_proj')");
  for (const char* name : {"experts", "mlp.experts", "experts.gate_up_proj", "gate_up_proj", "mlp.experts.3.down_proj"})
    EXPECT_THAT(refusal(qwen, name),
                ::testing::HasSubstr("is a part of the routed experts of qwen2_moe, and has no adapter"))
        << name;
  EXPECT_EQ(refusal(mixtral, "w1"),
            "lora.target_modules = 'w1' is a part of the routed experts of mixtral, and has no adapter (use 'q_proj')");
  EXPECT_THAT(refusal(mixtral, "block_sparse_moe.experts.0.w2"),
              ::testing::HasSubstr("is a part of the routed experts of mixtral"));
  EXPECT_THAT(refusal(mixtral, "block_sparse_moe.gate"), ::testing::HasSubstr("is the router of mixtral"));
  EXPECT_EQ(
      refusal(olmoe, "up_proj"),
      "lora.target_modules = 'up_proj' is a part of the routed experts of olmoe, and has no adapter (use 'q_proj')");
  EXPECT_THAT(refusal(deepseek, "gate"), ::testing::HasSubstr("is the router of deepseek_v3"));
  EXPECT_THAT(refusal(deepseek, "q_proj"), ::testing::HasSubstr("is not a linear layer of a block of deepseek_v3"));
  EXPECT_THAT(refusal(deepseek, "kv_a_proj"), ::testing::HasSubstr("use 'kv_a_proj_with_mqa'"));
}

TEST(MixtureLora, RefusesToTrainThemWhole) {
  const ModelSpec qwen = qwen2_moe();
  const auto refusal = [&](const char* name) { return complaint_about(qwen, lora_of({"q_proj"}, {name})); };
  EXPECT_EQ(refusal("mlp"),
            "lora.modules_to_save = 'mlp' has routed experts or their router in it, which stay as they are next to "
            "adapters (use 'norm')");
  EXPECT_THAT(refusal("gate"), ::testing::HasSubstr("is the router, which stays"));
  EXPECT_THAT(refusal("experts"), ::testing::HasSubstr("is a part of the routed experts, which stays"));
  EXPECT_THAT(refusal("shared_expert_gate"), ::testing::HasSubstr("is the shared expert's gate, which stays"));
  EXPECT_THAT(complaint_about(preset("olmoe-1b-7b"), lora_of({"q_proj"}, {"down_proj"})),
              ::testing::HasSubstr("is a part of the routed experts, which stays"));
  EXPECT_EQ(refusal("shared_expert"), "accepted");
  EXPECT_EQ(refusal("down_proj"), "accepted");
  std::set<std::string> whole;
  for (const NamedShape& each : whole_parameters(qwen, lora_of({"q_proj"}, {"down_proj"}))) whole.insert(each.name);
  EXPECT_THAT(whole,
              ElementsAre("model.layers.0.mlp.shared_expert.down_proj.weight", "model.layers.1.mlp.down_proj.weight",
                          "model.layers.2.mlp.shared_expert.down_proj.weight"));
}

TEST(MixtureLora, ARankIsAtMostTheColumnsOfALayer) {
  const auto refusal = [](const ModelSpec& model, std::int64_t rank) {
    LoraConfig lora = lora_of({"all-linear"});
    lora.rank = rank;
    return complaint_about(model, lora);
  };
  EXPECT_EQ(refusal(qwen2_moe(), 81), "lora.rank = 81 is more than the 80 columns of a linear layer (use 80)");
  EXPECT_EQ(refusal(preset("deepseek-v3-28m"), 65),
            "lora.rank = 65 is more than the 64 columns of a linear layer (use 64)");
  EXPECT_EQ(refusal(preset("deepseek-v3-28m"), 64), "accepted");
}

// What moves routers is off next to adapters, as with moe.freeze_router.
TEST(MixtureLora, RefusesWhatMovesRouters) {
  const auto refusal = [](auto&& set) {
    RunConfig config;
    config.model = preset("deepseek-v3-28m");
    config.training.seq_len = 64;
    config.lora.rank = 4;
    set(config);
    try {
      validate(config);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal([](RunConfig&) {}), "accepted");
  EXPECT_EQ(refusal([](RunConfig& c) { c.moe.freeze_router = true; }), "accepted");
  EXPECT_EQ(refusal([](RunConfig& c) { c.moe.seq_aux_loss_coeff = 0.1; }),
            "moe.seq_aux_loss_coeff = 0.1 moves routers, which lora.rank = 4 keeps (use 0)");
  EXPECT_EQ(refusal([](RunConfig& c) { c.moe.bias_update_rate = 0.001; }),
            "moe.bias_update_rate = 0.001 moves routers, which lora.rank = 4 keeps (use 0)");
}

// 2 N less of what a token uses: of 64 experts the 8 that it takes.
TEST(MixtureLora, FlopsAreThoseOfActiveParameters) {
  RunConfig config;
  config.model = preset("olmoe-1b-7b");
  config.training.seq_len = 64;
  const ModelSpec& m = config.model;
  const double all = model_flops_per_token(config);
  config.lora = lora_of({"q_proj"});
  const std::int64_t D = m.hidden_size, frozen = m.num_active_parameters() - m.vocab_size * D;
  EXPECT_DOUBLE_EQ(model_flops_per_token(config), all - 2.0 * static_cast<double>(frozen) +
                                                      6.0 * static_cast<double>(m.num_hidden_layers * 4 * 2 * D));
}

}  // namespace
}  // namespace echelon
