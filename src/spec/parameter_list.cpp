#include "spec/parameter_list.h"

#include <fmt/format.h>

#include <utility>

namespace echelon {
namespace {

// Sizes: V vocabulary, P positions, D model width, F feed-forward width, Q and K rows of the query and of the key
// projection.
struct Widths {
  explicit Widths(const ModelSpec& m)
      : V(m.vocab_size),
        P(m.max_position_embeddings),
        D(m.hidden_size),
        F(m.intermediate_size),
        Q(m.num_attention_heads * m.head_dim),
        K(m.num_key_value_heads * m.head_dim) {}
  std::int64_t V, P, D, F, Q, K;
};

class ParameterList {
 public:
  explicit ParameterList(const ModelSpec& model) : model_(model), w_(model) {}

  std::vector<NamedShape> take() {
    add("model.embed_tokens.weight", {w_.V, w_.D});
    if (model_.position == PositionKind::learned) add("model.embed_positions.weight", {w_.P, w_.D});
    for (std::int64_t i = 0; i < model_.num_hidden_layers; ++i) add_layer(fmt::format("model.layers.{}.", i), i);
    add_norm("model.norm");
    if (!model_.tie_word_embeddings) add("lm_head.weight", {w_.V, w_.D});
    return std::move(parameters_);
  }

 private:
  void add(std::string name, Sizes sizes) { parameters_.push_back({std::move(name), sizes}); }

  void add_norm(const std::string& name) {
    add(name + ".weight", {w_.D});
    if (model_.norm == NormKind::layer_norm) add(name + ".bias", {w_.D});
  }

  void add_linear(const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out});
  }

  void add_layer(const std::string& layer, std::int64_t index) {
    if (model_.norm_placement != NormPlacement::after) add_norm(layer + "input_layernorm");
    if (model_.has_latents())
      add_latents(layer + "self_attn.");
    else
      add_heads(layer + "self_attn.");
    add_norm(layer + "post_attention_layernorm");
    if (model_.norm_placement == NormPlacement::both) add_norm(layer + "pre_feedforward_layernorm");
    if (model_.mixture.is_in(index))
      add_experts(layer + "mlp.");
    else
      add_mlp(layer + "mlp.");
    if (model_.norm_placement != NormPlacement::before) add_norm(layer + "post_feedforward_layernorm");
  }

  void add_latents(const std::string& attention) {
    const std::int64_t Lq = model_.q_lora_rank, L = model_.kv_lora_rank, R = model_.qk_rope_head_dim,
                       H = model_.num_attention_heads, V = model_.v_head_dim;
    if (Lq == 0) {
      add(attention + "q_proj.weight", {w_.Q, w_.D});
    } else {
      add(attention + "q_a_proj.weight", {Lq, w_.D});
      add(attention + "q_a_layernorm.weight", {Lq});
      add(attention + "q_b_proj.weight", {w_.Q, Lq});
    }
    add(attention + "kv_a_proj.weight", {L, w_.D});
    add(attention + "k_rope_proj.weight", {R, w_.D});
    add(attention + "kv_a_layernorm.weight", {L});
    add(attention + "kv_b_proj.weight", {H * (model_.head_dim - R + V), L});
    add(attention + "o_proj.weight", {w_.D, H * V});
  }

  void add_heads(const std::string& attention) {
    add_linear(attention + "q_proj", w_.Q, w_.D, model_.qkv_bias);
    add_linear(attention + "k_proj", w_.K, w_.D, model_.qkv_bias);
    add_linear(attention + "v_proj", w_.K, w_.D, model_.qkv_bias);
    const bool is_whole = model_.qk_norm_of_projection;
    if (model_.qk_norm) add(attention + "q_norm.weight", {is_whole ? w_.Q : model_.head_dim});
    if (model_.qk_norm) add(attention + "k_norm.weight", {is_whole ? w_.K : model_.head_dim});
    add_linear(attention + "o_proj", w_.D, w_.Q, model_.o_bias);
  }

  void add_mlp(const std::string& mlp) {
    if (is_gated(model_.mlp)) add_linear(mlp + "gate_proj", w_.F, w_.D, model_.mlp_bias);
    add_linear(mlp + "up_proj", w_.F, w_.D, model_.mlp_bias);
    add_linear(mlp + "down_proj", w_.D, w_.F, model_.mlp_bias);
  }

  void add_experts(const std::string& mlp) {
    const MixtureSpec& m = model_.mixture;
    const std::int64_t E = m.num_experts, F = m.moe_intermediate_size, S = m.shared_expert_intermediate_size;
    add(mlp + "gate.weight", {E, w_.D});
    add(mlp + "experts.gate_proj.weight", {E, F, w_.D});
    add(mlp + "experts.up_proj.weight", {E, F, w_.D});
    add(mlp + "experts.down_proj.weight", {E, w_.D, F});
    if (S == 0) return;
    add(mlp + "shared_expert.gate_proj.weight", {S, w_.D});
    add(mlp + "shared_expert.up_proj.weight", {S, w_.D});
    add(mlp + "shared_expert.down_proj.weight", {w_.D, S});
    if (m.gates_shared_expert) add(mlp + "shared_expert_gate.weight", {1, w_.D});
  }

  const ModelSpec& model_;
  Widths w_;
  std::vector<NamedShape> parameters_;
};

}  // namespace

std::vector<NamedShape> global_parameters(const ModelSpec& model) { return ParameterList(model).take(); }

}  // namespace echelon
