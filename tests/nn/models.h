// Small models with sizes that differ from each other, so that a mixed-up dim shows.
#pragma once

#include "comm/mesh.h"
#include "nn/context.h"
#include "nn/decoder/stage.h"

#include <vector>

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

/// Qwen2-MoE's gate of the shared expert.
inline ModelSpec small_gated_mixture() {
  ModelSpec model = small_mixture();
  model.mixture.gates_shared_expert = true;
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

/// DeepSeek-V3-like: expanded queries, keys and values; heads of 6 columns, of which 4 are rotary, and values of 3.
inline ModelSpec small_latents() {
  ModelSpec model = small_llama();
  model.num_key_value_heads = model.num_attention_heads;
  model.kv_lora_rank = 7;
  model.q_lora_rank = 5;
  model.qk_rope_head_dim = 4;
  model.v_head_dim = 3;
  model.rope_scaling = RopeScaling{.rope_type = RopeType::yarn,
                                   .factor = 4,
                                   .original_max_position_embeddings = 4,
                                   .mscale = 0.7,
                                   .mscale_all_dim = 0.9};
  return model;
}

/// DeepSeek-V2-Lite-like: queries that are not expanded, and values as wide as keys.
inline ModelSpec small_latents_of_keys() {
  ModelSpec model = small_latents();
  model.q_lora_rank = 0;
  model.v_head_dim = 6;
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
  model.o_bias = model.mlp_bias = true;
  model.num_key_value_heads = model.num_attention_heads;
  model.tie_word_embeddings = true;
  return model;
}

/// Biases everywhere in a Llama, GeGLU, and YaRN on four of six columns of a head, beyond the original positions.
inline ModelSpec small_yarn() {
  ModelSpec model = small_llama();
  model.mlp = MlpKind::geglu;
  model.qkv_bias = model.o_bias = model.mlp_bias = true;
  model.partial_rotary_factor = 0.7;
  model.rope_scaling = RopeScaling{.rope_type = RopeType::yarn,
                                   .factor = 4,
                                   .original_max_position_embeddings = 4,
                                   .beta_fast = 1,
                                   .beta_slow = 0.1,
                                   .truncate = false};
  return model;
}

/// StarCoder2-like: a Llama with LayerNorm, GELU by erf and biases of the output and the MLP alone.
inline ModelSpec small_gelu() {
  ModelSpec model = small_llama();
  model.norm = NormKind::layer_norm;
  model.mlp = MlpKind::gelu_erf;
  model.o_bias = model.mlp_bias = true;
  return model;
}

/// A layer with a window and a RoPE of its own, and one without RoPE (as in Gemma 3 and SmolLM3).
inline ModelSpec small_layer_types() {
  ModelSpec model = small_llama();
  model.sliding_window = 3;
  model.layer_types = {LayerType::sliding_attention, LayerType::full_attention};
  model.sliding_rope = RopeSpec{.rope_theta = 50};
  model.rope_scaling = RopeScaling{.rope_type = RopeType::linear, .factor = 2};
  model.no_rope_layers = {1, 0};
  return model;
}

/// Gemma-like: norms with gain 1 + w on both sides of each branch, soft caps, a scaled embedding.
inline ModelSpec small_gemma() {
  ModelSpec model = small_llama();
  model.mlp = MlpKind::geglu;
  model.qk_norm = true;
  model.norm_placement = NormPlacement::both;
  model.norm_adds_one = true;
  model.embedding_multiplier = 3.2;
  model.query_pre_attn_scalar = 5;
  model.attn_logit_softcapping = 0.7;
  model.final_logit_softcapping = 1.5;
  model.tie_word_embeddings = true;
  return model;
}

/// OLMo-2-like: norms after the branches, and of the whole q and k; and OLMoE's limit of q, k and v.
inline ModelSpec small_olmo() {
  ModelSpec model = small_llama();
  model.norm_placement = NormPlacement::after;
  model.qk_norm = model.qk_norm_of_projection = true;
  model.clip_qkv = 0.65;  // from which all values are so far that no finite difference crosses it
  return model;
}

/// Granite's four multipliers.
inline ModelSpec small_granite() {
  ModelSpec model = small_llama();
  model.embedding_multiplier = 2.5;
  model.residual_multiplier = 0.4;
  model.attention_multiplier = 0.3;
  model.logits_scaling = 1.7;
  return model;
}

/// GPT-NeoX-like: both branches read x, LayerNorm, biases everywhere, a part of the columns turns.
inline ModelSpec small_neox() {
  ModelSpec model = small_llama();
  model.norm = NormKind::layer_norm;
  model.mlp = MlpKind::gelu_erf;
  model.qkv_bias = model.o_bias = model.mlp_bias = true;
  model.use_parallel_residual = true;
  model.partial_rotary_factor = 0.34;
  return model;
}

/// Ministral-3-like: queries grow with their positions, every two positions here.
inline ModelSpec small_growing_queries() {
  ModelSpec model = small_llama();
  model.rope_scaling = RopeScaling{.rope_type = RopeType::yarn,
                                   .factor = 4,
                                   .original_max_position_embeddings = 2,
                                   .beta_fast = 1,
                                   .beta_slow = 0.1,
                                   .llama_4_scaling_beta = 0.5};
  return model;
}

/// Models whose mechanisms no family of the others has.
inline std::vector<ModelSpec> small_mechanisms() {
  return {small_yarn(), small_gelu(),    small_layer_types(), small_gemma(),
          small_olmo(), small_granite(), small_neox(),        small_growing_queries()};
}

inline std::vector<ModelSpec> all_small_models() {
  std::vector<ModelSpec> models = small_mechanisms();
  for (const ModelSpec& model : {small_llama(), small_qwen(), small_gpt2()}) models.push_back(model);
  return models;
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
