#include "checkpoint/hf/family_fields.h"

#include <fmt/format.h>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

class FieldReader {
 public:
  FieldReader(const ConfigFields& config, ModelSpec& model) : config_(config), model_(model) {}

  void operator()(const IntegerField& field) {
    std::optional<std::int64_t> absent;
    if (field.absent != nullptr) absent = field.absent(model_);
    model_.*field.member = config_.integer(field.key, field.most, absent);
  }
  void operator()(const NumberField& field) { model_.*field.member = config_.number(field.key, field.absent); }
  void operator()(const FlagField& field) {
    bool& flag = model_.*field.member;
    flag = config_.boolean(field.key, field.absent.value_or(flag));
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
  void operator()(const NumberField& field) { config[field.key] = model.*field.member; }
  void operator()(const FlagField& field) { config[field.key] = model.*field.member; }
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
  derive_heads(config, description, model);
  if (model.position == PositionKind::rope) read_rope(config, model);
  read_windows(config, description.windows, model);
  if (description.mixture) read_mixture(config, *description.mixture, model);
  return model;
}

void write_family_fields(const ModelSpec& model, Json& config) {
  const FamilyDescription& description = description_of(model.family);
  config["architectures"] = {description.architecture};
  config["model_type"] = description.model_type;
  for (const FamilyField& field : description.fields) std::visit(FieldWriter{model, config}, field);
  if (model.position == PositionKind::rope) write_rope(model, config);
  write_windows(model, description.windows, config);
  if (description.mixture) write_mixture(model, *description.mixture, config);
}

}  // namespace echelon
