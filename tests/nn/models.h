// Small models with sizes that differ from each other, so that a mixed-up dim shows.
#pragma once

#include "comm/mesh.h"
#include "nn/context.h"
#include "nn/decoder/stage.h"

namespace echelon::test {

/// Llama-like: RMSNorm, RoPE, SwiGLU, grouped queries.
inline ModelSpec small_llama() {
  ModelSpec model = family_defaults(Family::llama);
  model.hidden_size = 10;
  model.num_hidden_layers = 2;
  model.num_attention_heads = 4;
  model.num_key_value_heads = 2;
  model.head_dim = 6;
  model.intermediate_size = 14;
  model.vocab_size = 11;
  model.max_position_embeddings = 16;
  model.initializer_range = 0.3;
  model.tie_word_embeddings = false;
  return model;
}

/// Qwen2 and Qwen3 at once: biases of q, k and v, norms of q and k, a tied head.
inline ModelSpec small_qwen() {
  ModelSpec model = small_llama();
  model.family = Family::qwen3;
  model.qkv_bias = true;
  model.qk_norm = true;
  model.tie_word_embeddings = true;
  return model;
}

/// A mixture of experts in every layer: of five experts two for a token, and a shared one.
inline ModelSpec small_mixture() {
  ModelSpec model = small_llama();
  model.mixture = {.num_experts = 5,
                   .num_experts_per_tok = 2,
                   .moe_intermediate_size = 7,
                   .norm_topk_prob = true,
                   .shared_expert_intermediate_size = 5};
  return model;
}

/// DeepSeek-V3's rule of choice, and a dense layer before the mixture.
inline ModelSpec small_groups_of_experts() {
  ModelSpec model = small_qwen();
  model.mixture = {.num_experts = 6,
                   .num_experts_per_tok = 3,
                   .moe_intermediate_size = 5,
                   .scoring_func = RouterScores::sigmoid,
                   .norm_topk_prob = true,
                   .routed_scaling_factor = 1.5,
                   .n_group = 3,
                   .topk_group = 2,
                   .sums_two_of_group = true,
                   .first_k_dense_replace = 1};
  return model;
}

/// GPT-2-like: LayerNorm, learned positions, GELU, biases everywhere, no shared kv heads.
inline ModelSpec small_gpt2() {
  ModelSpec model = small_llama();
  const ModelSpec gpt2 = family_defaults(Family::gpt2);
  model.family = Family::gpt2;
  model.norm = gpt2.norm;
  model.position = gpt2.position;
  model.mlp = gpt2.mlp;
  model.qkv_bias = true;
  model.output_bias = true;
  model.num_key_value_heads = model.num_attention_heads;
  model.tie_word_embeddings = true;
  return model;
}

/// All layers of these models: the embedding, both blocks and the head.
inline constexpr StageLayers whole_model = {.first_layer = 0, .num_layers = 2, .has_embedding = true, .has_head = true};

/// Only tensor-parallel ranks.
inline MeshShape tp_shape(int tp) { return MeshShape({{Axis::tp, tp}}); }

/// One rank, float64.
inline LayerOptions one_rank(const ModelSpec& model, std::int64_t num_sequences = 2, std::int64_t seq_len = 5) {
  LayerOptions options;
  options.model = model;
  options.dtype = DType::float64;
  options.grad_dtype = DType::float64;
  options.num_sequences = num_sequences;
  options.seq_len = seq_len;
  return options;
}

}  // namespace echelon::test
