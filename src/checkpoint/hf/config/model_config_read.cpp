#include "checkpoint/hf/config/model_config.h"

#include "base/error.h"
#include "checkpoint/hf/config/family_fields.h"
#include "checkpoint/hf/config/foreign_fields.h"
#include "checkpoint/hf/config/unsupported.h"
#include "checkpoint/hf/config/wrapper_config.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace echelon {
namespace {

// "LlamaForSequenceClassification" has another head, whose weights nothing here reads.
void add_other_heads(const ConfigFields& config, std::vector<std::string>& refusals) {
  const std::string_view usual = wraps_language_model(config) ? "ForConditionalGeneration" : "ForCausalLM";
  for (const std::string& architecture : config.texts("architectures"))
    if (architecture.find("For") != std::string::npos && !architecture.ends_with(usual))
      refusals.push_back(config.refusal(
          "architectures", fmt::format("has {}, which is no language model; a ...{} is one", architecture, usual)));
}

bool is_family(std::string_view model_type) {
  return std::ranges::find(all_families(), model_type, &FamilyDescription::model_type) != all_families().end();
}

/// What is known before the fields of the family are read.
std::vector<std::string> refusals_of(const ConfigFields& config) {
  const ConfigFields language = language_model_of(config);
  const std::string model_type = language.text("model_type");
  std::vector<std::string> refusals = unsupported_fields_of(config, is_family(model_type));
  if (!is_family(model_type)) return refusals;
  if (wraps_language_model(config))
    for (std::string& refusal : unsupported_fields_of(language, true)) refusals.push_back(std::move(refusal));
  add_other_heads(config, refusals);
  for (std::string& refusal : foreign_fields_of(language, description_of(parse_family(model_type))))
    refusals.push_back(std::move(refusal));
  return refusals;
}

ModelSpec read_fields(const ConfigFields& whole, const std::filesystem::path& path) {
  const ConfigFields config = language_model_of(whole);
  std::vector<std::string_view> supported;
  for (const FamilyDescription& family : all_families()) supported.push_back(family.model_type);
  const std::string model_type = config.text("model_type");
  config.require_one_of("model_type", model_type, supported);
  ModelSpec model = read_family_fields(config, parse_family(model_type));
  try {
    validate(model);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path.string(), error.what()));
  }
  return model;
}

}  // namespace

ModelSpec read_config_json(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const ConfigFields config(path);
  const std::vector<std::string> refusals = refusals_of(config);
  if (!refusals.empty()) throw Error(refusals.front());
  return read_fields(config, path);
}

std::vector<std::string> faults_of_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const ConfigFields config(path);
  std::vector<std::string> faults;
  try {
    faults = refusals_of(config);
    if (faults.empty() || is_family(language_model_of(config).text("model_type"))) (void)read_fields(config, path);
  } catch (const Error& error) {
    faults.emplace_back(error.what());
  }
  return faults;
}

std::string dropout_note(const std::filesystem::path& folder) {
  const ConfigFields config = language_model_of(ConfigFields(folder / "config.json"));
  std::vector<std::string> values;
  for (const FamilyField& field : description_of(parse_family(config.text("model_type"))).fields)
    if (const auto* dropout = std::get_if<DropoutField>(&field); dropout && config.number(dropout->key, 0.0) != 0)
      values.push_back(fmt::format("{} = {}", dropout->key, config.number(dropout->key)));
  if (values.empty()) return "";
  return fmt::format("{} {} kept and not applied: Echelon has no dropout", fmt::join(values, ", "),
                     values.size() == 1 ? "is" : "are");
}

TrainingNote read_training_note(const std::filesystem::path& folder) {
  constexpr std::int64_t longest_default = 8192;
  const ModelSpec model = read_config_json(folder);
  const ConfigFields config(folder / "config.json");
  return {.seq_len = config.integer("training_seq_len", model.max_position_embeddings,
                                    std::min(model.max_position_embeddings, longest_default)),
          .steps = config.integer("training_steps", std::numeric_limits<std::int64_t>::max(), 0),
          .capacity_factor = config.number("training_capacity_factor", 0.0)};
}

}  // namespace echelon
