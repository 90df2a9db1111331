#include "checkpoint/hf/config/model_config.h"

#include "base/error.h"
#include "checkpoint/hf/config/family_fields.h"
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
  return ConfigFields(folder / "config.json").text("model_type") == name_of(family) ? folder : std::filesystem::path();
}

void write_model_config(const std::filesystem::path& folder, const ModelSpec& model, const ConfigNotes& notes) {
  require_sayable(model);
  Json config = Json::object();
  if (!notes.source.empty()) config = Json::parse(read_text_in_folder(notes.source, "config.json"));
  put_tokens(notes, config);
  write_family_fields(model, config);
  if (!config.contains("use_cache")) config["use_cache"] = true;
  for (const char* key : {"torch_dtype", "dtype"}) config[key] = name_of(notes.dtype);
  if (notes.training.seq_len > 0) config["training_seq_len"] = notes.training.seq_len;
  if (notes.training.steps > 0) config["training_steps"] = notes.training.steps;
  write_text(folder / "config.json", config.dump(2) + "\n");
}

}  // namespace echelon
