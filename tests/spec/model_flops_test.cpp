// The flops of a token where some weights are frozen, by closed forms.
#include "spec/config/model_flops.h"

#include "spec/lora/lora_parameters.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

RunConfig config_of(std::string_view name) {
  RunConfig config;
  config.model = preset(name);
  config.training.seq_len = 64;
  return config;
}

double num_matmul_parameters(const ModelSpec& m) {
  const std::int64_t table = m.tie_word_embeddings ? 0 : m.vocab_size * m.hidden_size;
  return static_cast<double>(m.num_active_parameters() - table);
}

// 4 N and 6 r (in + out) of each linear layer; attention as it is without adapters.
TEST(ModelFlops, FrozenWeightsHaveNoGradients) {
  RunConfig config = config_of("llama-10m");
  const ModelSpec& m = config.model;
  const double attention = model_flops_per_token(config) - 6 * num_matmul_parameters(m);
  EXPECT_EQ(attention, 12.0 * static_cast<double>(m.num_hidden_layers * m.num_attention_heads * m.head_dim * 64));
  config.lora.rank = 8;
  const std::int64_t D = m.hidden_size, F = m.intermediate_size, Q = m.num_attention_heads * m.head_dim,
                     K = m.num_key_value_heads * m.head_dim;
  const std::int64_t adapters = m.num_hidden_layers * 8 * (2 * (D + Q) + 2 * (D + K) + 3 * (D + F));
  EXPECT_DOUBLE_EQ(model_flops_per_token(config),
                   4 * num_matmul_parameters(m) + attention + 6 * static_cast<double>(adapters));
  config.lora.target_modules = {"q_proj", "v_proj"};
  EXPECT_DOUBLE_EQ(
      model_flops_per_token(config),
      4 * num_matmul_parameters(m) + attention + 6 * static_cast<double>(m.num_hidden_layers * 8 * (2 * D + Q + K)));
}

// q, k and v of GPT-2 are one module, whose A is multiplied once.
TEST(ModelFlops, LayersOfAFusedModuleShareAProduct) {
  RunConfig config = config_of("gpt2-124m");
  const std::int64_t D = config.model.hidden_size;
  const double without = model_flops_per_token(config);
  config.lora = {.rank = 4, .target_modules = {"c_attn"}};
  const double frozen =
      2 * (num_matmul_parameters(config.model) - static_cast<double>(config.model.max_position_embeddings * D));
  EXPECT_DOUBLE_EQ(model_flops_per_token(config),
                   without - frozen + 6 * static_cast<double>(config.model.num_hidden_layers * 4 * (D + 3 * D)));
}

TEST(ModelFlops, FrozenRoutersHaveNoGradients) {
  RunConfig config = config_of("qwen3-30b-a3b");
  const double all = model_flops_per_token(config);
  config.moe.freeze_router = true;
  EXPECT_DOUBLE_EQ(all - model_flops_per_token(config), 2.0 * 48 * 128 * 2048);
}

}  // namespace
}  // namespace echelon
