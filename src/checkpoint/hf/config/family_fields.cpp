#include "checkpoint/hf/config/family_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

struct Activation {
  std::string_view name;
  MlpKind kind;
};

// The first of a kind is written.
constexpr Activation activations[] = {
    {"silu", MlpKind::swiglu},    {"swish", MlpKind::swiglu},  {"gelu_pytorch_tanh", MlpKind::geglu},
    {"gelu_new", MlpKind::geglu}, {"gelu_new", MlpKind::gelu}, {"gelu_pytorch_tanh", MlpKind::gelu},
    {"gelu_fast", MlpKind::gelu}, {"gelu", MlpKind::gelu_erf}};

class FieldReader {
 public:
  FieldReader(const ConfigFields& config, ModelSpec& model) : config_(config), model_(model) {}

  void operator()(const IntegerField& field) {
    std::optional<std::int64_t> absent;
    if (field.absent != nullptr) absent = field.absent(model_);
    model_.*field.member = config_.integer(field.key, field.most, absent);
  }
  void operator()(const NumberField& field) {
    double& value = model_.*field.member;
    value = config_.number(field.key, field.absent);
    if (field.kind != NumberKind::any && value <= 0) config_.refuse(field.key, "is not above 0");
    if (field.kind == NumberKind::whole && value != std::floor(value))
      config_.refuse(field.key, "is not a whole number");
  }
  void operator()(const CapField& field) {
    double& value = model_.*field.member;
    value = config_.is_null(field.key) ? 0.0 : config_.number(field.key, field.absent);
    if (config_.has(field.key) && value <= 0) config_.refuse(field.key, "is not above 0 (use null for no cap)");
  }
  void operator()(const FlagField& field) {
    const bool flag = config_.boolean(field.key, field.absent.value_or(model_.*field.members.front()));
    for (const auto member : field.members) model_.*member = flag;
  }
  void operator()(const ActivationField& field) {
    if (!config_.has(field.key)) return;
    const std::string name = config_.text(field.key);
    std::vector<std::string_view> supported;
    for (const Activation& each : activations) {
      if (is_gated(each.kind) != is_gated(model_.mlp)) continue;
      supported.push_back(each.name);
      if (each.name == name) model_.mlp = each.kind;
    }
    config_.require_one_of(field.key, name, supported);
  }
  void operator()(const FixedField& field) {
    if (const bool* flag = std::get_if<bool>(&field.value)) return config_.require_flag(field.key, *flag);
    const auto text = std::get<std::string_view>(field.value);
    std::vector<std::string_view> spellings = {text};
    if (!field.also.empty()) spellings.push_back(field.also);
    config_.require_one_of(field.key, config_.text(field.key, std::string(text)), spellings);
  }
  void operator()(const DropoutField& field) { (void)config_.number(field.key, 0.0); }

 private:
  const ConfigFields& config_;
  ModelSpec& model_;
};

struct FieldWriter {
  void operator()(const IntegerField& field) { config[field.key] = model.*field.member; }
  void operator()(const NumberField& field) {
    const double value = model.*field.member;
    config[field.key] =
        field.kind == NumberKind::whole && value == std::floor(value) ? Json(std::llround(value)) : Json(value);
  }
  void operator()(const CapField& field) {
    config[field.key] = model.*field.member > 0 ? Json(model.*field.member) : Json(nullptr);
  }
  void operator()(const FlagField& field) { config[field.key] = model.*field.members.front(); }
  void operator()(const ActivationField& field) {
    const auto is_same = [&](const Activation& each) {
      return each.kind == model.mlp && config.contains(field.key) && config[field.key] == each.name;
    };
    if (std::ranges::any_of(activations, is_same)) return;  // another spelling
    config[field.key] = std::ranges::find(activations, model.mlp, &Activation::kind)->name;
  }
  void operator()(const FixedField& field) {
    std::visit([&](const auto& value) { put_if_absent(field.key, value); }, field.value);
  }
  void operator()(const DropoutField& field) { put_if_absent(field.key, 0.0); }

  void put_if_absent(std::string_view key, const Json& value) {
    if (!config.contains(key) || config[key].is_null()) config[key] = value;
  }

  const ModelSpec& model;
  Json& config;
};

// transformers calls the rotary columns of a head head_dim.
void read_latents(const ConfigFields& config, ModelSpec& model) {
  model.kv_lora_rank = config.integer("kv_lora_rank", max_width);
  model.q_lora_rank = config.integer("q_lora_rank", max_width, 0);
  model.qk_rope_head_dim = config.integer("qk_rope_head_dim", max_heads);
  model.v_head_dim = config.integer("v_head_dim", max_heads);
  model.head_dim = config.integer("qk_nope_head_dim", max_heads) + model.qk_rope_head_dim;
}

void write_latents(const ModelSpec& model, Json& config) {
  config["kv_lora_rank"] = model.kv_lora_rank;
  config["q_lora_rank"] = model.q_lora_rank > 0 ? Json(model.q_lora_rank) : Json(nullptr);
  config["qk_rope_head_dim"] = model.qk_rope_head_dim;
  config["v_head_dim"] = model.v_head_dim;
  config["qk_nope_head_dim"] = model.head_dim - model.qk_rope_head_dim;
  config["head_dim"] = model.qk_rope_head_dim;
  // The layers that predict further tokens are left out.
  if (config.contains("num_mtp_layers")) config["num_mtp_layers"] = 0;
  config["num_nextn_predict_layers"] = 0;
}

// Heads that the config gives no width share the model's.
void derive_heads(const ConfigFields& config, const FamilyDescription& family, ModelSpec& model) {
  if (model.num_key_value_heads == 0) model.num_key_value_heads = model.num_attention_heads;
  if (model.head_dim != 0) return;
  if (model.hidden_size % model.num_attention_heads != 0)
    config.refuse(key_of(family, &ModelSpec::num_attention_heads),
                  fmt::format("does not divide {} = {}{}", key_of(family, &ModelSpec::hidden_size), model.hidden_size,
                              key_of(family, &ModelSpec::head_dim).empty() ? "" : ", and there is no head_dim"));
  model.head_dim = model.hidden_size / model.num_attention_heads;
}

}  // namespace

ModelSpec read_family_fields(const ConfigFields& config, Family family) {
  const FamilyDescription& description = description_of(family);
  ModelSpec model = family_defaults(family);
  for (const FamilyField& field : description.fields) std::visit(FieldReader(config, model), field);
  if (description.has_latents) read_latents(config, model);
  derive_heads(config, description, model);
  set_embedding_multiplier(model);
  read_windows(config, description, model);
  if (model.position == PositionKind::rope) read_rope(config, description.rope, model);
  if (description.mixture) read_mixture(config, *description.mixture, model);
  return model;
}

void write_family_fields(const ModelSpec& model, Json& config) {
  const FamilyDescription& description = description_of(model.family);
  config["architectures"] = {description.architecture};
  config["model_type"] = description.model_type;
  for (const FamilyField& field : description.fields) std::visit(FieldWriter{model, config}, field);
  if (model.position == PositionKind::rope) write_rope(model, description.rope, config);
  write_windows(model, description.windows, config);
  if (description.mixture) write_mixture(model, *description.mixture, config);
  if (description.has_latents) write_latents(model, config);
}

}  // namespace echelon
