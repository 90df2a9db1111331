// The architecture of a decoder-only transformer. One decoder serves several families: the differences are fields, so
// that layers never test the family.
#pragma once

#include "spec/mixture_spec.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

enum class Family : std::uint8_t { gpt2, llama, qwen2, qwen3, mistral, mixtral, qwen3_moe };
enum class NormKind : std::uint8_t { layer_norm, rms_norm };
enum class PositionKind : std::uint8_t { learned, rope };
enum class MlpKind : std::uint8_t { gelu, swiglu };

/// Llama-3's scaling of RoPE frequencies ("rope_type": "llama3").
struct RopeScaling {
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;
  bool operator==(const RopeScaling&) const = default;
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
  double norm_eps = 1e-5;  // rms_norm_eps | layer_norm_epsilon
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  // In layers from max_window_layers on, position p attends to p - sliding_window + 1 ... p. 0: to all before it.
  std::int64_t sliding_window = 0;
  std::int64_t max_window_layers = 0;

  NormKind norm = NormKind::rms_norm;
  PositionKind position = PositionKind::rope;
  MlpKind mlp = MlpKind::swiglu;
  bool qkv_bias = false;     // biases of q, k and v
  bool output_bias = false;  // biases of the attention's output and of both linear layers of the MLP
  bool qk_norm = false;      // RMSNorm over head_dim of q and k, before RoPE (Qwen3)

  MixtureSpec mixture = {};  // of experts, in place of the MLP of some layers or all

  bool operator==(const ModelSpec&) const = default;

  /// Parameters of the whole model; a tied head is counted once.
  [[nodiscard]] std::int64_t num_parameters() const;
  /// Those that a token uses: of the experts of a layer the num_experts_per_tok chosen ones.
  [[nodiscard]] std::int64_t num_active_parameters() const;

  /// Of a layer; 0: no limit. Which layer has which window is said here alone.
  [[nodiscard]] std::int64_t window_of(std::int64_t layer) const {
    return layer >= max_window_layers ? sliding_window : 0;
  }
  /// The first layer after `layer` with another window, or the number of layers.
  [[nodiscard]] std::int64_t end_of_windows_from(std::int64_t layer) const;
  /// The fewest features of an MLP or an expert: tensor parallelism divides each.
  [[nodiscard]] std::int64_t narrowest_mlp() const;
  /// The windows of all layers, each once, in the order of the layers.
  [[nodiscard]] std::vector<std::int64_t> windows() const;
};

/// 6 N + 12 L H d_head T, forward and backward. N: the active parameters used in matmuls, so without position tables
/// and, if the head has its own weight, without the token table. Attention is not halved for the causal mask; in layers
/// with a shorter window, T is the window. (PaLM, Chowdhery et al. 2022, appendix B; torchtitan counts the same.)
[[nodiscard]] double model_flops_per_token(const ModelSpec& model, std::int64_t seq_len);

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
