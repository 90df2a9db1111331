#include "checkpoint/hf/config/model_config.h"

#include "base/error.h"
#include "checkpoint/hf/config/family_fields.h"
#include "checkpoint/hf/config/foreign_fields.h"
#include "checkpoint/hf/config/unsupported.h"

#include <algorithm>
#include <limits>
#include <string>

namespace echelon {
namespace {

// "LlamaForSequenceClassification" has another head, whose weights nothing here reads.
void refuse_other_heads(const ConfigFields& config) {
  for (const std::string& architecture : config.texts("architectures"))
    if (architecture.find("For") != std::string::npos && !architecture.ends_with("ForCausalLM"))
      config.refuse("architectures",
                    fmt::format("has {}, which is no language model; a ...ForCausalLM is one", architecture));
}

ModelSpec read_model(const ConfigFields& config) {
  const std::string model_type = config.text("model_type");
  std::vector<std::string_view> supported;
  for (const FamilyDescription& family : all_families()) supported.push_back(family.model_type);
  for (const char* key : {"quantization_config", "compression_config"})
    if (config.has(key)) config.refuse(key, "is not supported; convert the weights to bfloat16 first");
  if (std::ranges::find(supported, model_type) == supported.end()) refuse_unsupported(config);
  config.require_one_of("model_type", model_type, supported);
  refuse_other_heads(config);
  const Family family = parse_family(model_type);
  refuse_foreign_fields(config, description_of(family));
  return read_family_fields(config, family);
}

}  // namespace

ModelSpec read_config_json(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const ModelSpec model = read_model(ConfigFields(path));
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
