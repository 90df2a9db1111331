#include "checkpoint/hf/config/model_config.h"

#include "base/error.h"
#include "checkpoint/hf/config/family_fields.h"
#include "checkpoint/hf/config/wrapper_config.h"
#include "files/file.h"

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

ModelSpec as_read(const ModelSpec& model) {
  Json written = Json::object();
  write_family_fields(model, written);
  return read_family_fields(ConfigFields("config.json", nlohmann::json::parse(written.dump())), model.family);
}

void require_equal(const ModelSpec& model, std::string_view key, std::int64_t wanted, std::int64_t read) {
  require(wanted == read, "model.{} = {} cannot be written for a model of family {} (use {})", key, wanted,
          name_of(model.family), read);
}

void put_tokens(const ConfigNotes& notes, Json& config) {
  const bool has_source = !config.empty();  // whose ids stay, or the defaults of its family
  const std::pair<const char*, std::optional<std::int64_t>> ids[] = {{"bos_token_id", notes.tokens.bos},
                                                                     {"eos_token_id", notes.tokens.eos}};
  for (const auto& [key, id] : ids)
    if (id || notes.replaces_tokens || !has_source) config[key] = id ? Json(*id) : Json(nullptr);
  // An absent id is that of the family's published models, which may be beyond this vocabulary.
  if (notes.replaces_tokens || !has_source) config["pad_token_id"] = nullptr;
}

constexpr const char* inside = "text_config";
constexpr const char* dtype_keys[] = {"torch_dtype", "dtype"};

Json config_of_source(const ConfigNotes& notes) {
  if (notes.source.empty()) return Json::object();
  Json config = Json::parse(without_python_numbers(read_text_in_folder(notes.source, "config.json")));
  if (!wraps_language_model(ConfigFields(notes.source / "config.json"))) return config;
  if (!config.contains(inside) || !config[inside].is_object()) config[inside] = Json::object();
  if (!notes.text_only) return config;
  Json language = config[inside];
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})  // the wrapper's, if it has its own
    if (config.contains(key)) language[key] = config[key];
  return language;
}

/// The fields of a language model in its wrapper, whose other fields stay.
void write_inside(const ModelSpec& model, const ConfigNotes& notes, Json& config) {
  Json& language = config[inside];
  const bool has_architectures = language.contains("architectures");
  if (notes.replaces_tokens) put_tokens(notes, language);
  write_family_fields(model, language);
  if (!has_architectures) language.erase("architectures");
  for (const char* key : dtype_keys)
    if (language.contains(key)) language[key] = name_of(notes.dtype);
  config["tie_word_embeddings"] = model.tie_word_embeddings;
}

}  // namespace

void require_sayable(const ModelSpec& model) {
  const ModelSpec read = as_read(model);
  if (read == model) return;
  require_equal(model, "num_key_value_heads", model.num_key_value_heads, read.num_key_value_heads);
  require_equal(model, "head_dim", model.head_dim, read.head_dim);
  require_equal(model, "intermediate_size", model.intermediate_size, read.intermediate_size);
  require_equal(model, "shared_expert_intermediate_size", model.mixture.shared_expert_intermediate_size,
                read.mixture.shared_expert_intermediate_size);
  throw Error(
      fmt::format("a model of family {} with another norm, position, mlp, bias, q/k norm, RoPE, kind of layers or "
                  "choice of experts than the family's cannot be written as a Hugging Face folder",
                  name_of(model.family)));
}

std::filesystem::path source_of(const std::filesystem::path& folder, Family family) {
  if (folder.empty() || !has_target(folder / "config.json")) return {};
  const ConfigFields config(folder / "config.json");
  return language_model_of(config).text("model_type") == name_of(family) ? folder : std::filesystem::path();
}

void write_model_config(const std::filesystem::path& folder, const ModelSpec& model, const ConfigNotes& notes) {
  require_sayable(model);
  Json config = config_of_source(notes);
  put_tokens(notes, config);
  if (config.contains(inside) && !notes.source.empty()) {
    write_inside(model, notes, config);
  } else {
    write_family_fields(model, config);
    if (!config.contains("use_cache")) config["use_cache"] = true;
  }
  for (const char* key : dtype_keys) config[key] = name_of(notes.dtype);
  if (notes.training.seq_len > 0) config["training_seq_len"] = notes.training.seq_len;
  if (notes.training.steps > 0) config["training_steps"] = notes.training.steps;
  if (notes.training.capacity_factor > 0) config["training_capacity_factor"] = notes.training.capacity_factor;
  write_text(folder / "config.json", config.dump(2) + "\n");
}

}  // namespace echelon
