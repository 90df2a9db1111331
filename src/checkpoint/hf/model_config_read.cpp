#include "checkpoint/hf/model_config.h"

#include "base/error.h"
#include "checkpoint/hf/config_fields.h"

#include <algorithm>
#include <string>

namespace echelon {
namespace {

// Above any model, and small enough that no product of them overflows.
constexpr std::int64_t max_width = 1 << 24;
constexpr std::int64_t max_heads = 1 << 16;
constexpr std::int64_t max_layers = 100'000;
constexpr std::int64_t max_rows = (1LL << 31) - 1;  // of embeddings

ModelSpec read_gpt2(const ConfigFields& config) {
  ModelSpec model = family_defaults(Family::gpt2);
  model.hidden_size = config.integer("n_embd", max_width);
  model.num_hidden_layers = config.integer("n_layer", max_layers);
  model.num_attention_heads = config.integer("n_head", max_heads);
  model.num_key_value_heads = model.num_attention_heads;
  if (model.hidden_size % model.num_attention_heads != 0)
    config.refuse("n_head", fmt::format("does not divide n_embd = {}", model.hidden_size));
  model.head_dim = model.hidden_size / model.num_attention_heads;
  model.intermediate_size = config.integer("n_inner", max_width, 4 * model.hidden_size);
  model.vocab_size = config.integer("vocab_size", max_rows);
  model.max_position_embeddings = config.integer("n_positions", max_rows);
  model.norm_eps = config.number("layer_norm_epsilon", 1e-5);
  model.initializer_range = config.number("initializer_range", 0.02);
  model.tie_word_embeddings = config.boolean("tie_word_embeddings", model.tie_word_embeddings);
  config.require_one_of("activation_function", config.text("activation_function", "gelu_new"),
                        {"gelu_new", "gelu_pytorch_tanh"});
  config.require_flag("scale_attn_weights", true);
  config.require_flag("scale_attn_by_inverse_layer_idx", false);
  config.require_flag("add_cross_attention", false);
  return model;
}

// transformers 4 has rope_theta and rope_scaling, transformers 5 one object rope_parameters that holds both.
void read_rope(const ConfigFields& config, ModelSpec& model) {
  const std::string key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const ConfigFields rope = config.object(key);
  model.rope_theta = rope.number("rope_theta", config.number("rope_theta", 10000.0));
  for (const auto* holder : {&config, &rope})
    if (holder->number("partial_rotary_factor", 1.0) != 1.0)
      holder->refuse("partial_rotary_factor", "is not supported (use 1.0)");
  if (!config.has(key)) return;
  // "type" is its older name.
  const std::string type_key = rope.has("type") && !rope.has("rope_type") ? "type" : "rope_type";
  const std::string type =
      rope.text(type_key, rope.has("factor") ? std::nullopt : std::optional<std::string>("default"));
  rope.require_one_of(type_key, type, {"default", "llama3"});
  if (type == "default") return;
  model.rope_scaling =
      RopeScaling{.factor = rope.number("factor"),
                  .low_freq_factor = rope.number("low_freq_factor"),
                  .high_freq_factor = rope.number("high_freq_factor"),
                  .original_max_position_embeddings = rope.integer("original_max_position_embeddings", max_rows)};
}

constexpr std::int64_t default_window = 4096;  // of transformers, for all families that have one

void read_mistral_window(const ConfigFields& config, ModelSpec& model) {
  if (!config.is_null("sliding_window"))
    model.sliding_window = config.integer("sliding_window", max_rows, default_window);
}

// Layers from max_window_layers on use a sliding window, if any; layer_types repeats which ones.
void read_qwen_windows(const ConfigFields& config, ModelSpec& model) {
  constexpr std::int64_t default_max_window_layers = 28;
  const auto layer_types = config.texts("layer_types");
  const bool has_window = config.boolean("use_sliding_window", false) && !config.is_null("sliding_window");
  std::int64_t first = has_window ? config.integer("max_window_layers", max_rows, default_max_window_layers, 0)
                                  : model.num_hidden_layers;
  if (!layer_types.empty()) {
    first = std::find(layer_types.begin(), layer_types.end(), "sliding_attention") - layer_types.begin();
    for (const std::string& type : layer_types)
      config.require_one_of("layer_types", type, {"full_attention", "sliding_attention"});
    const bool is_split_once = std::all_of(layer_types.begin() + first, layer_types.end(),
                                           [](const std::string& type) { return type == "sliding_attention"; });
    if (std::ssize(layer_types) != model.num_hidden_layers || !is_split_once)
      config.refuse("layer_types", "is no list of all layers with full_attention before sliding_attention");
    if (!has_window && first < model.num_hidden_layers)
      config.refuse("layer_types", "has sliding_attention, but the model has no sliding_window");
  }
  if (first >= model.num_hidden_layers) return;
  model.sliding_window = config.integer("sliding_window", max_rows, default_window);
  model.max_window_layers = first;
}

void read_windows(const ConfigFields& config, ModelSpec& model) {
  if (model.family == Family::mistral) return read_mistral_window(config, model);
  if (has_windows_of_layers(model.family)) return read_qwen_windows(config, model);
  for (const std::string& type : config.texts("layer_types"))
    config.require_one_of("layer_types", type, {"full_attention"});
}

ModelSpec read_llama_like(const ConfigFields& config, Family family) {
  ModelSpec model = family_defaults(family);
  model.hidden_size = config.integer("hidden_size", max_width);
  model.num_hidden_layers = config.integer("num_hidden_layers", max_layers);
  model.num_attention_heads = config.integer("num_attention_heads", max_heads);
  model.num_key_value_heads = config.integer("num_key_value_heads", max_heads, model.num_attention_heads);
  const bool has_default_head_dim = family == Family::qwen3;
  if (!config.has("head_dim") && !has_default_head_dim && model.hidden_size % model.num_attention_heads != 0)
    config.refuse("num_attention_heads",
                  fmt::format("does not divide hidden_size = {}, and there is no head_dim", model.hidden_size));
  model.head_dim =
      config.integer("head_dim", max_heads, has_default_head_dim ? 128 : model.hidden_size / model.num_attention_heads);
  model.intermediate_size = config.integer("intermediate_size", max_width);
  model.vocab_size = config.integer("vocab_size", max_rows);
  model.max_position_embeddings = config.integer("max_position_embeddings", max_rows);
  model.norm_eps = config.number("rms_norm_eps", 1e-6);
  model.initializer_range = config.number("initializer_range", 0.02);
  model.tie_word_embeddings = config.boolean("tie_word_embeddings", model.tie_word_embeddings);
  config.require_one_of("hidden_act", config.text("hidden_act", "silu"), {"silu", "swish"});
  config.require_flag("mlp_bias", false);
  // Qwen2 always has its biases.
  if (family != Family::qwen2) config.require_flag("attention_bias", false);
  read_rope(config, model);
  read_windows(config, model);
  return model;
}

// "LlamaForSequenceClassification" has another head, whose weights nothing here reads.
void refuse_other_heads(const ConfigFields& config) {
  for (const std::string& architecture : config.texts("architectures"))
    if (architecture.find("For") != std::string::npos && !architecture.ends_with("ForCausalLM"))
      config.refuse("architectures",
                    fmt::format("has {}, which is no language model; a ...ForCausalLM is one", architecture));
}

ModelSpec read_family(const ConfigFields& config) {
  const std::string model_type = config.text("model_type");
  config.require_one_of("model_type", model_type, {"gpt2", "llama", "qwen2", "qwen3", "mistral"});
  if (config.has("quantization_config"))
    config.refuse("quantization_config", "is not supported; convert the weights to bfloat16 first");
  refuse_other_heads(config);
  const Family family = parse_family(model_type);
  switch (family) {
    case Family::gpt2: return read_gpt2(config);
    case Family::llama:
    case Family::qwen2:
    case Family::qwen3:
    case Family::mistral: return read_llama_like(config, family);
  }
  throw Error("unknown model family");
}

}  // namespace

ModelSpec read_config_json(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const ModelSpec model = read_family(ConfigFields(path));
  try {
    validate(model);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path.string(), error.what()));
  }
  return model;
}

TrainingNote read_training_note(const std::filesystem::path& folder) {
  constexpr std::int64_t longest_default = 8192;
  const ModelSpec model = read_config_json(folder);
  const ConfigFields config(folder / "config.json");
  return {.seq_len = config.integer("training_seq_len", model.max_position_embeddings,
                                    std::min(model.max_position_embeddings, longest_default)),
          .steps = config.integer("training_steps", std::numeric_limits<std::int64_t>::max(), 0)};
}

}  // namespace echelon
