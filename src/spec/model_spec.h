// The architecture of a decoder-only transformer. One decoder serves several families: the differences are fields, so
// that layers never test the family.
#pragma once

#include "spec/mixture_spec.h"
#include "spec/rope_spec.h"

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

enum class Family : std::uint8_t {
  gpt2,
  llama,
  qwen2,
  qwen3,
  mistral,
  mixtral,
  qwen3_moe,
  dots1,
  qwen2_moe,
  phi3,
  starcoder2,
  smollm3,
  ministral3,
  olmo2,
  olmo3,
  olmoe,
  granite,
  gemma2,
  gemma3_text,
  gpt_neox,
  deepseek_v2,
  deepseek_v3
};
enum class NormKind : std::uint8_t { layer_norm, rms_norm };
enum class PositionKind : std::uint8_t { learned, rope };
enum class MlpKind : std::uint8_t { gelu, swiglu, geglu, gelu_erf };  // gelu, geglu: approximated by tanh
[[nodiscard]] constexpr bool is_gated(MlpKind kind) { return kind == MlpKind::swiglu || kind == MlpKind::geglu; }
enum class NormPlacement : std::uint8_t { before, after, both };  // of a block's branches
enum class LayerType : std::uint8_t { full_attention, sliding_attention };

/// What tells layers apart.
struct LayerKind {
  std::int64_t window = 0;
  bool has_rope = true;  // unless the model has RoPE, but not in this layer
  bool has_experts = false;
  auto operator<=>(const LayerKind&) const = default;
};

/// Field names follow Hugging Face's config.json of the Llama family.
struct ModelSpec {
  Family family = Family::llama;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  // Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): keys and values are expanded from kv_lora_rank values
  // of a token. 0: there is none. The first qk_rope_head_dim columns of a head are rotary, and keys share theirs.
  std::int64_t kv_lora_rank = 0;
  std::int64_t q_lora_rank = 0;  // 0: queries are not expanded
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;  // of a value, which is not wider than a key of head_dim
  bool rope_interleave = true;  // in the files a pair of rotary columns is adjacent
  double norm_eps = 1e-5;       // rms_norm_eps | layer_norm_epsilon
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;
  double partial_rotary_factor = 1.0;        // RoPE turns the first columns of a head
  std::optional<RopeSpec> sliding_rope;      // of layers with a window; none: as in all layers
  std::vector<std::int64_t> no_rope_layers;  // 1 for each layer with RoPE, 0 for one without; empty: all have it
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  // In layers from max_window_layers on, position p attends to p - sliding_window + 1 ... p. 0: to all before it.
  std::int64_t sliding_window = 0;
  std::int64_t max_window_layers = 0;
  std::vector<LayerType> layer_types;  // of every layer, in place of max_window_layers; empty: none

  NormKind norm = NormKind::rms_norm;
  PositionKind position = PositionKind::rope;
  MlpKind mlp = MlpKind::swiglu;
  bool qkv_bias = false;               // biases of q, k and v
  bool o_bias = false;                 // bias of the attention's output
  bool mlp_bias = false;               // biases of all linear layers of the MLP
  bool qk_norm = false;                // RMSNorm over head_dim of q and k, before RoPE (Qwen3)
  bool qk_norm_of_projection = false;  // then over all heads together (OLMo 2)
  double clip_qkv = 0;  // q, k and v are limited to +- clip_qkv, after the norms (OLMoE); 0: they are not

  NormPlacement norm_placement = NormPlacement::before;
  bool norm_adds_one = false;            // the gain of RMSNorm is 1 + weight (Gemma)
  bool norm_rounds_before_gain = false;  // x rstd is rounded to the activations' dtype before its gain
  bool use_parallel_residual = false;    // attention and the MLP read the same x (GPT-NeoX)

  double embedding_multiplier = 1.0;
  bool rounds_embedding_multiplier = false;  // to the weights' dtype (Gemma)
  double residual_multiplier = 1.0;          // of what a branch adds
  double attention_multiplier = 0;           // of scores; 0: 1 / sqrt(query_pre_attn_scalar)
  double query_pre_attn_scalar = 0;          // 0: head_dim
  double logits_scaling = 1.0;               // logits are divided by it
  double attn_logit_softcapping = 0;         // cap tanh(score / cap); 0: none
  double final_logit_softcapping = 0;

  MixtureSpec mixture = {};  // of experts, in place of the MLP of some layers or all

  bool operator==(const ModelSpec&) const = default;

  /// Parameters of the whole model; a tied head is counted once.
  [[nodiscard]] std::int64_t num_parameters() const;
  /// Those that a token uses: of the experts of a layer the num_experts_per_tok chosen ones.
  [[nodiscard]] std::int64_t num_active_parameters() const;

  /// Of some layer: a family with mixtures may have dense layers alone.
  [[nodiscard]] bool has_experts() const {
    return mixture.exists() && (mixture.is_in_all_layers() || mixture.num_layers_of(num_hidden_layers) > 0);
  }

  /// Of a layer; 0: no limit. Which layer has which window is said here alone.
  [[nodiscard]] std::int64_t window_of(std::int64_t layer) const {
    const bool slides = layer_types.empty()
                            ? layer >= max_window_layers
                            : layer_types[static_cast<std::size_t>(layer)] == LayerType::sliding_attention;
    return slides ? sliding_window : 0;
  }
  [[nodiscard]] bool has_rope(std::int64_t layer) const {
    return position == PositionKind::rope &&
           (no_rope_layers.empty() || no_rope_layers[static_cast<std::size_t>(layer)] != 0);
  }
  [[nodiscard]] LayerKind kind_of(std::int64_t layer) const {
    return {window_of(layer), position != PositionKind::rope || has_rope(layer), mixture.is_in(layer)};
  }
  /// The first layer after `layer` of another kind, or the number of layers.
  [[nodiscard]] std::int64_t end_of_kind_from(std::int64_t layer) const;
  /// The kinds of all layers, each once, in the order of the layers.
  [[nodiscard]] std::vector<LayerKind> layer_kinds() const;
  /// The same model with layers of this kind alone.
  [[nodiscard]] ModelSpec with_layers_of(const LayerKind& kind) const;
  /// The fewest features of an MLP or an expert: tensor parallelism divides each.
  [[nodiscard]] std::int64_t narrowest_mlp() const;

  /// Of every layer. If all layers from one on have a window, max_window_layers says so.
  void set_layer_types(std::vector<LayerType> types);
  /// With the lists of layers or pairs that the model has, shortened or repeated.
  void set_num_layers(std::int64_t count);
  void set_head_dim(std::int64_t width);

  [[nodiscard]] bool has_latents() const { return kv_lora_rank > 0; }
  /// The width of a value in the output projection and in the files; attention pads it to head_dim.
  [[nodiscard]] std::int64_t value_dim() const { return has_latents() ? v_head_dim : head_dim; }
  [[nodiscard]] std::int64_t num_attention_parameters() const;

  /// What scores are multiplied by.
  [[nodiscard]] double attention_scale() const;

  /// Columns of a head that RoPE turns.
  [[nodiscard]] std::int64_t rotary_dim() const {
    if (has_latents()) return qk_rope_head_dim;
    return static_cast<std::int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
  }
  /// Those of layers without a window, and of layers with one if they differ; then as many of queries if they grow.
  [[nodiscard]] std::vector<RopeSpec> ropes() const;
  /// Which of them is that of layers with this window.
  [[nodiscard]] std::size_t rope_index(std::int64_t window) const { return window > 0 && sliding_rope ? 1 : 0; }
  [[nodiscard]] bool has_growing_queries() const { return rope_scaling && rope_scaling->llama_4_scaling_beta > 0; }
  /// The windows of all layers, each once, in the order of the layers.
  [[nodiscard]] std::vector<std::int64_t> windows() const;
};

/// 6 N + 12 L H d_head T, forward and backward. N: the active parameters used in matmuls, so without position tables
/// and, if the head has its own weight, without the token table. Attention is not halved for the causal mask; in layers
/// with a shorter window, T is the window. (PaLM, Chowdhery et al. 2022, appendix B; torchtitan counts the same.)
[[nodiscard]] double model_flops_per_token(const ModelSpec& model, std::int64_t seq_len);
/// The second of the two.
[[nodiscard]] double attention_flops_per_token(const ModelSpec& model, std::int64_t seq_len);

/// The family's fixed choices and defaults with no sizes set. A family is described in spec/families.
[[nodiscard]] ModelSpec family_defaults(Family family);
[[nodiscard]] std::string_view name_of(Family family);           // config.json's model_type
[[nodiscard]] Family parse_family(std::string_view model_type);  // Throws Error with a value to use

/// The spec of a preset, e.g. "gpt2-124m", "llama-10m", "llama3-8b". Throws Error with a value to use.
[[nodiscard]] ModelSpec preset(std::string_view name);
[[nodiscard]] std::vector<std::string_view> preset_names();

/// Throws Error with the key, the value and the fix if the sizes contradict each other (zero sizes, heads % kv heads,
/// odd head_dim under RoPE, ...).
void validate(const ModelSpec& model);

}  // namespace echelon
