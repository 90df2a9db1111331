#include "checkpoint/hf/model_config.h"

#include "base/error.h"
#include "files/file.h"

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

std::string_view architecture_of(Family family) {
  switch (family) {
    case Family::gpt2: return "GPT2LMHeadModel";
    case Family::llama: return "LlamaForCausalLM";
    case Family::qwen2: return "Qwen2ForCausalLM";
    case Family::qwen3: return "Qwen3ForCausalLM";
    case Family::mistral: return "MistralForCausalLM";
  }
  return "";
}

Json gpt2_fields(const ModelSpec& model) {
  return {{"activation_function", "gelu_new"},
          {"n_embd", model.hidden_size},
          {"n_layer", model.num_hidden_layers},
          {"n_head", model.num_attention_heads},
          {"n_inner", model.intermediate_size},
          {"n_positions", model.max_position_embeddings},
          {"n_ctx", model.max_position_embeddings},
          {"layer_norm_epsilon", model.norm_eps},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0}};
}

Json rope_scaling_of(const ModelSpec& model) {
  if (!model.rope_scaling) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", model.rope_scaling->factor},
          {"low_freq_factor", model.rope_scaling->low_freq_factor},
          {"high_freq_factor", model.rope_scaling->high_freq_factor},
          {"original_max_position_embeddings", model.rope_scaling->original_max_position_embeddings}};
}

void add_windows(const ModelSpec& model, Json& fields) {
  const bool has_window = model.sliding_window > 0;
  if (has_windows(model.family)) fields["sliding_window"] = has_window ? Json(model.sliding_window) : Json(nullptr);
  if (!has_windows_of_layers(model.family)) return;
  fields["use_sliding_window"] = has_window;
  if (has_window) fields["max_window_layers"] = model.max_window_layers;
}

Json llama_like_fields(const ModelSpec& model) {
  Json fields = {{"hidden_act", "silu"},
                 {"hidden_size", model.hidden_size},
                 {"num_hidden_layers", model.num_hidden_layers},
                 {"num_attention_heads", model.num_attention_heads},
                 {"num_key_value_heads", model.num_key_value_heads},
                 {"head_dim", model.head_dim},
                 {"intermediate_size", model.intermediate_size},
                 {"max_position_embeddings", model.max_position_embeddings},
                 {"rms_norm_eps", model.norm_eps},
                 {"rope_theta", model.rope_theta},
                 {"rope_scaling", rope_scaling_of(model)},
                 {"attention_dropout", 0.0}};
  if (model.family != Family::qwen2) fields["attention_bias"] = false;
  if (model.family == Family::llama) fields["mlp_bias"] = false;
  add_windows(model, fields);
  return fields;
}

constexpr std::int64_t ModelSpec::*sizes_of_config[] = {
    &ModelSpec::hidden_size,         &ModelSpec::num_hidden_layers, &ModelSpec::num_attention_heads,
    &ModelSpec::num_key_value_heads, &ModelSpec::head_dim,          &ModelSpec::intermediate_size,
    &ModelSpec::vocab_size,          &ModelSpec::sliding_window,    &ModelSpec::max_position_embeddings,
    &ModelSpec::max_window_layers};

Json id_or_null(const std::optional<std::int64_t>& id) { return id ? Json(*id) : Json(nullptr); }

}  // namespace

void require_sayable(const ModelSpec& model) {
  // There is no field for choices that a family fixes, so a different choice would be lost silently.
  ModelSpec said = family_defaults(model.family);
  for (const auto size : sizes_of_config) said.*size = model.*size;
  said.norm_eps = model.norm_eps;
  said.initializer_range = model.initializer_range;
  said.tie_word_embeddings = model.tie_word_embeddings;
  const bool is_llama3_scaling = model.rope_scaling && model.rope_scaling->rope_type == RopeType::llama3;
  if (model.position == PositionKind::rope) said.rope_theta = model.rope_theta;
  if (!model.rope_scaling || is_llama3_scaling) said.rope_scaling = model.rope_scaling;
  require(said == model,
          "a model of family {} with another norm, position, mlp, bias, q/k norm, RoPE or kind of layers than the "
          "family's cannot be written as a Hugging Face folder",
          name_of(model.family));
  if (model.family != Family::gpt2) return;
  require(model.num_key_value_heads == model.num_attention_heads,
          "model.num_key_value_heads = {} cannot be written for GPT-2 (use {})", model.num_key_value_heads,
          model.num_attention_heads);
  require(model.head_dim * model.num_attention_heads == model.hidden_size,
          "model.head_dim = {} cannot be written for GPT-2 (use {})", model.head_dim,
          model.hidden_size / model.num_attention_heads);
}

void write_model_config(const std::filesystem::path& folder, const ModelSpec& model, DType dtype,
                        const SpecialTokens& tokens, const TrainingNote& note) {
  require_sayable(model);
  Json config = {{"architectures", {architecture_of(model.family)}}, {"model_type", name_of(model.family)}};
  config.update(model.family == Family::gpt2 ? gpt2_fields(model) : llama_like_fields(model));
  config["vocab_size"] = model.vocab_size;
  config["initializer_range"] = model.initializer_range;
  config["tie_word_embeddings"] = model.tie_word_embeddings;
  config["bos_token_id"] = id_or_null(tokens.bos);
  config["eos_token_id"] = id_or_null(tokens.eos);
  config["use_cache"] = true;
  config["torch_dtype"] = name_of(dtype);
  if (note.seq_len > 0) config["training_seq_len"] = note.seq_len;
  if (note.steps > 0) config["training_steps"] = note.steps;
  write_text(folder / "config.json", config.dump(2) + "\n");
}

}  // namespace echelon
