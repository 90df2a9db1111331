#include "checkpoint/hf/model_config.h"

#include "base/error.h"
#include "checkpoint/bounded_json.h"
#include "checkpoint/hf/family_fields.h"
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

// Fields that the source has and the model does not change. A source of another family says nothing about this model.
Json fields_of(const ConfigNotes& notes, Family family) {
  if (notes.source.empty() || !has_target(notes.source / "config.json")) return Json::object();
  const ConfigFields source(notes.source / "config.json");
  if (source.text("model_type") != name_of(family)) return Json::object();
  return Json::parse(read_text_in_folder(notes.source, "config.json"));
}

void put_token(Json& config, std::string_view key, const std::optional<std::int64_t>& id) {
  if (id) config[key] = *id;
  if (!config.contains(key)) config[key] = nullptr;
}

}  // namespace

void require_sayable(const ModelSpec& model) {
  const ModelSpec read = as_read(model);
  if (read == model) return;
  require_equal(model, "num_key_value_heads", model.num_key_value_heads, read.num_key_value_heads);
  require_equal(model, "head_dim", model.head_dim, read.head_dim);
  throw Error(
      fmt::format("a model of family {} with another norm, position, mlp, bias or q/k norm than the family's cannot be "
                  "written as a Hugging Face folder",
                  name_of(model.family)));
}

void write_model_config(const std::filesystem::path& folder, const ModelSpec& model, const ConfigNotes& notes) {
  require_sayable(model);
  Json config = fields_of(notes, model.family);
  write_family_fields(model, config);
  put_token(config, "bos_token_id", notes.tokens.bos);
  put_token(config, "eos_token_id", notes.tokens.eos);
  config["use_cache"] = true;
  for (const char* key : {"torch_dtype", "dtype"}) config[key] = name_of(notes.dtype);
  if (notes.training.seq_len > 0) config["training_seq_len"] = notes.training.seq_len;
  if (notes.training.steps > 0) config["training_steps"] = notes.training.steps;
  write_text(folder / "config.json", config.dump(2) + "\n");
}

}  // namespace echelon
