#include "spec/config/config_model.h"

#include "base/error.h"
#include "spec/families/family.h"

#include <algorithm>

namespace echelon {
namespace {

class ModelSettings {
 public:
  explicit ModelSettings(const std::vector<Setting>& settings) : settings_(settings) {}

  // The last setting wins: the command line is after the file.
  const Setting* find(std::string_view name) const {
    const auto found =
        std::find_if(settings_.rbegin(), settings_.rend(), [&](const Setting& s) { return s.name == name; });
    return found == settings_.rend() ? nullptr : &*found;
  }

  bool has(std::string_view name) const { return find(name) != nullptr; }

  std::string text(std::string_view name) const {
    const Setting* setting = find(name);
    if (!setting) return "";
    const auto* text = std::get_if<std::string>(&setting->value);
    require(text != nullptr, "{}: {} = {} is not a string", setting->origin, name, to_toml(setting->value));
    return *text;
  }

 private:
  const std::vector<Setting>& settings_;
};

ModelSpec base_model(const ModelSettings& settings, const ConfigSource& source) {
  const std::string name = settings.text("model.preset"), path = settings.text("model.path"),
                    family = settings.text("model.model_type");
  require(name.empty() || path.empty(), "model.preset = '{}' and model.path = '{}' are both set; omit one of them",
          name, path);
  require(!name.empty() || !path.empty() || !family.empty(),
          "the config has no model: set model.preset, model.path or model.model_type (use {})",
          "model.preset = \"llama-10m\"");
  if (name.empty() && path.empty()) return family_defaults(parse_family(family));
  require(path.empty() || source.read_model, "model.path = '{}' cannot be read by this command; use model.preset",
          path);
  const ModelSpec model = name.empty() ? source.read_model(path) : preset(name);
  require(family.empty() || parse_family(family) == model.family,
          "model.model_type = '{}' contradicts model.{} = '{}' (use {})", family, name.empty() ? "path" : "preset",
          name.empty() ? path : name, name_of(model.family));
  return model;
}

// Derives sizes that the user did not set from those that are set. Otherwise a preset's own sizes remain.
void derive_sizes(const ModelSettings& settings, const ModelSpec& base, ModelSpec& model) {
  if (base.num_hidden_layers > 0) {
    const std::int64_t num_layers = model.num_hidden_layers;
    if (!settings.has("model.mlp_only_layers")) model.num_hidden_layers = base.num_hidden_layers;
    model.set_num_layers(num_layers);
  }
  const bool from_scratch = base.hidden_size == 0;
  const bool equal_heads = from_scratch || base.num_key_value_heads == base.num_attention_heads;
  if (!settings.has("model.num_key_value_heads") && equal_heads) model.num_key_value_heads = model.num_attention_heads;
  const bool width_changed =
      model.hidden_size != base.hidden_size || model.num_attention_heads != base.num_attention_heads;
  if (!settings.has("model.head_dim") && width_changed && !model.has_latents() && model.num_attention_heads > 0) {
    require(
        model.hidden_size % model.num_attention_heads == 0,
        "model.hidden_size = {} is not a multiple of model.num_attention_heads = {} (use {}, or set model.head_dim)",
        model.hidden_size, model.num_attention_heads,
        std::max<std::int64_t>(1, model.hidden_size / model.num_attention_heads) * model.num_attention_heads);
    const std::int64_t head_dim = model.hidden_size / model.num_attention_heads;
    require(head_dim <= max_heads,
            "model.hidden_size = {} makes heads of {} with model.num_attention_heads = {}; a head has at most {} (use "
            "model.hidden_size = {})",
            model.hidden_size, head_dim, model.num_attention_heads, max_heads, max_heads * model.num_attention_heads);
    model.set_head_dim(head_dim);
  }
  const auto& experts = description_of(model.family).mixture;
  if (experts && experts->shares_width() && !settings.has("model.moe_intermediate_size"))
    model.mixture.moe_intermediate_size = model.intermediate_size;
  if (model.embedding_multiplier == base.embedding_multiplier) set_embedding_multiplier(model);
  const bool four_times = !is_gated(model.mlp) && (from_scratch || base.intermediate_size == 4 * base.hidden_size);
  if (!settings.has("model.intermediate_size") && four_times) model.intermediate_size = 4 * model.hidden_size;
}

void require_given(const ModelSettings& settings, const ModelSpec& model) {
  constexpr std::string_view needed[] = {"model.hidden_size", "model.num_hidden_layers", "model.num_attention_heads",
                                         "model.vocab_size", "model.max_position_embeddings"};
  for (const std::string_view name : needed)
    require(settings.has(name),
            "{} is missing: a model that starts from model.model_type = '{}' needs its sizes; or use model.preset",
            name, name_of(model.family));
  require(settings.has("model.intermediate_size") || !is_gated(model.mlp),
          "model.intermediate_size is missing: a model that starts from model.model_type = '{}' needs its sizes; or "
          "use model.preset",
          name_of(model.family));
}

void require_experts(const ModelSettings& settings, const ModelSpec& model) {
  const auto& experts = description_of(model.family).mixture;
  if (!experts) return;
  for (const std::string_view name : {"model.num_experts", "model.num_experts_per_tok", "model.moe_intermediate_size"})
    require(settings.has(name) || (name == "model.moe_intermediate_size" && experts->shares_width()),
            "{} is missing: a model that starts from model.model_type = '{}' needs its experts; or use model.preset",
            name, name_of(model.family));
}

bool needs_scaling(const ModelSettings& settings) {
  constexpr std::string_view types[] = {"llama3", "default"};
  const std::string type = settings.text("model.rope_scaling.rope_type");
  require(type.empty() || type == types[0] || type == types[1],
          "model.rope_scaling.rope_type = '{}' is not supported; did you mean {}?", type, closest_name(type, types));
  return type != "default";
}

}  // namespace

void assign_model(const std::vector<Setting>& settings, const ConfigSource& source, RunConfig& config) {
  const ModelSettings model_settings(settings);
  const ModelSpec base = base_model(model_settings, source);
  config.model = base;
  const bool scaled = needs_scaling(model_settings);
  // These decide which keys apply.
  if (const Setting* mechanisms = model_settings.find("model.mechanisms")) assign(*mechanisms, config);
  for (const Setting& setting : settings) {
    const ConfigKey& key = *find_config_key(setting.name);
    if (section_of(key) != "model") continue;
    require(key.applies == nullptr || key.applies(config.model),
            "{}: {} = {} does not apply to model_type {} (omit it)", setting.origin, setting.name,
            to_toml(setting.value), name_of(config.model.family));
    assign(setting, config);
  }
  if (model_settings.text("model.rope_scaling.rope_type") == "llama3" && !config.model.rope_scaling)
    config.model.rope_scaling.emplace();
  if (!scaled) config.model.rope_scaling.reset();
  if (base.hidden_size == 0) require_given(model_settings, config.model);
  if (base.hidden_size == 0) require_experts(model_settings, config.model);
  derive_sizes(model_settings, base, config.model);
}

}  // namespace echelon
