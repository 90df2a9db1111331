// A family of models as data: its fixed choices, the fields of its config.json, and the names of its weights. Each
// family is a file of this folder. Readers and writers interpret the description, and nothing else asks for the family.
#pragma once

#include "spec/model_spec.h"

#include <optional>
#include <string_view>
#include <variant>
#include <vector>

namespace echelon {

/// Whole numbers from 1 to `most`. If the field is absent: `absent` of the fields before it; without one, an error.
struct IntegerField {
  std::string_view key;
  std::int64_t ModelSpec::*member;
  std::int64_t most;
  std::int64_t (*absent)(const ModelSpec&) = nullptr;
};

/// transformers takes some values only as whole numbers.
enum class NumberKind : std::uint8_t { any, above_zero, whole };

struct NumberField {
  std::string_view key;
  double ModelSpec::*member;
  std::optional<double> absent{};
  NumberKind kind = NumberKind::any;
};

/// A soft cap: above 0, or null for none.
struct CapField {
  std::string_view key;
  double ModelSpec::*member;
  double absent;
};

/// One flag may set several members. Without `absent`, the family's own choice is the default.
struct FlagField {
  std::string_view key;
  std::vector<bool ModelSpec::*> members;
  std::optional<bool> absent{};
};

/// The name of an activation, which the MLP applies to a gate or to its only first linear layer.
struct ActivationField {
  std::string_view key;
};

/// A field that has one value in every model that Echelon computes. `also`: another spelling of it.
struct FixedField {
  std::string_view key;
  std::variant<bool, std::string_view> value;
  std::string_view also{};
};

/// A probability that is kept and not applied: Echelon has no dropout.
struct DropoutField {
  std::string_view key;
};

using FamilyField =
    std::variant<IntegerField, NumberField, CapField, FlagField, ActivationField, FixedField, DropoutField>;

/// How config.json says which layers have a sliding window.
enum class WindowFields : std::uint8_t {
  none,
  everywhere,    // sliding_window, or null
  from_a_layer,  // use_sliding_window, max_window_layers, layer_types
  of_layers      // layer_types
};

/// What config.json says of RoPE in addition to its kind. Each field may be in rope_parameters too.
struct RopeFields {
  double absent_theta = 10000.0;
  std::string_view theta = "rope_theta";
  std::string_view partial{};  // of partial_rotary_factor; empty: RoPE turns all columns of a head
  double absent_partial = 1.0;
  bool differs_with_windows = false;    // layers with a window have no scaling,
  std::string_view theta_of_windows{};  // and a theta of their own
  std::int64_t no_rope_interval = 0;    // absent no_rope_layers: one layer in so many has no RoPE; 0: no such field
  std::optional<RopeScaling> absent_scaling{};  // where config.json says nothing of RoPE
  bool grows_queries = false;                   // llama_4_scaling_beta
  bool has_type_alone = false;  // transformers 4 takes rope_scaling with "type" and the constants of that type alone
};

/// How config.json describes a mixture of experts. num_experts_per_tok has one key in all families.
struct MixtureFields {
  std::string_view num_experts;
  std::string_view intermediate_size;    // of an expert
  std::string_view also_num_experts{};   // another spelling
  std::optional<bool> normalises{};      // in every model of the family; else norm_topk_prob says it
  bool has_dense_layers = false;         // decoder_sparse_step and mlp_only_layers
  bool has_gated_shared_expert = false;  // shared_expert_intermediate_size; "mlp.shared_expert_gate" in the files
  // As DeepSeek-V3: first_k_dense_replace, groups of experts, a scale, n_shared_experts as wide as so many experts, and
  // a bias of the choice, "mlp.gate.e_score_correction_bias" in the files.
  bool is_of_deepseek = false;
  bool has_topk_method = false;  // says whether there are groups; weights are never normalised (DeepSeek-V2)

  MixtureSpec absent = {};  // what absent fields say

  /// Whether a dense layer and an expert have the same width.
  [[nodiscard]] bool shares_width() const { return intermediate_size == "intermediate_size"; }
};

/// The rows of a fused tensor that a linear layer has. `of_heads`: the parts alternate from head to head.
enum class Slot : std::uint8_t {
  whole,
  query,
  key,
  value,
  gate,
  up,
  query_of_heads,
  key_of_heads,
  value_of_heads,
  rotary_query,
  latent,
  rotary_key
};

/// The name of a norm or a linear layer in the files, without ".weight" or ".bias".
struct WeightName {
  std::string_view parameter;  // Echelon's, which is Llama's, without "model.layers.N."
  // That of the family, without its own prefix of layers. Of a stack of matrices, "{}" stands for the index of one.
  std::string_view tensor;
  Slot slot = Slot::whole;
  bool is_transposed = false;  // a matrix [in, out]
};

/// What is not listed has the same name in the files.
struct WeightNames {
  std::string_view layers = "model.layers.";
  std::string_view base = "model.";  // a prefix that models saved without their head lack
  std::vector<WeightName> of_layer{}, of_model{};
};

struct FamilyDescription {
  std::string_view model_type, architecture;  // of config.json
  ModelSpec fixed{};                          // choices and defaults; no sizes
  std::vector<FamilyField> fields;
  WindowFields windows = WindowFields::none;
  std::int64_t absent_window = 0;                      // where the field is absent, and not null
  std::int64_t absent_window_pattern = 0;              // of absent layer_types: one layer in so many has no window
  bool multiplies_embedding_by_root_of_width = false;  // embedding_multiplier
  RopeFields rope{};
  WeightNames weights{};
  std::optional<MixtureFields> mixture{};
  // Latents of attention: kv_lora_rank and the widths of its heads. Further layers in the files, which predict further
  // tokens, are left out.
  bool has_latents = false;
};

[[nodiscard]] const FamilyDescription& description_of(Family family);
/// In the order of the enumeration.
[[nodiscard]] const std::vector<FamilyDescription>& all_families();

/// Where the family derives it from the width.
void set_embedding_multiplier(ModelSpec& model);

/// The key of the family's config.json that sets the member; empty if none does.
[[nodiscard]] std::string_view key_of(const FamilyDescription& family, std::int64_t ModelSpec::*member);

// Upper bounds above any model, and small enough that no product of them overflows.
constexpr std::int64_t max_width = 1 << 24;
constexpr std::int64_t max_heads = 1 << 16;
constexpr std::int64_t max_layers = 100'000;
constexpr std::int64_t max_rows = (1LL << 31) - 1;  // of embeddings

/// The default of an absent field.
template <std::int64_t value>
std::int64_t always(const ModelSpec& /*model*/) {
  return value;
}

/// The sizes and constants that Llama and the families after it have under the same keys.
[[nodiscard]] std::vector<FamilyField> fields_of_llama();

/// `fields` and `more`, of which those with the key of a field replace it.
[[nodiscard]] std::vector<FamilyField> with(std::vector<FamilyField> fields, const std::vector<FamilyField>& more);

[[nodiscard]] std::vector<FamilyField> without(std::vector<FamilyField> fields, std::string_view key);

// One file each.
[[nodiscard]] FamilyDescription describe_gpt2();
[[nodiscard]] FamilyDescription describe_llama();
[[nodiscard]] FamilyDescription describe_qwen2();
[[nodiscard]] FamilyDescription describe_qwen3();
[[nodiscard]] FamilyDescription describe_mistral();
[[nodiscard]] FamilyDescription describe_mixtral();
[[nodiscard]] FamilyDescription describe_qwen3_moe();
[[nodiscard]] FamilyDescription describe_dots1();
[[nodiscard]] FamilyDescription describe_qwen2_moe();
[[nodiscard]] FamilyDescription describe_phi3();
[[nodiscard]] FamilyDescription describe_starcoder2();
[[nodiscard]] FamilyDescription describe_smollm3();
[[nodiscard]] FamilyDescription describe_ministral3();
[[nodiscard]] FamilyDescription describe_olmo2();
[[nodiscard]] FamilyDescription describe_olmo3();
[[nodiscard]] FamilyDescription describe_olmoe();
[[nodiscard]] FamilyDescription describe_granite();
[[nodiscard]] FamilyDescription describe_gemma2();
[[nodiscard]] FamilyDescription describe_gemma3_text();
[[nodiscard]] FamilyDescription describe_gpt_neox();
[[nodiscard]] FamilyDescription describe_deepseek_v2();
[[nodiscard]] FamilyDescription describe_deepseek_v3();

}  // namespace echelon
