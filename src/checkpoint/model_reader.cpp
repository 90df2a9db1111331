#include "checkpoint/model_reader.h"

#include "base/error.h"
#include "checkpoint/hf/config/model_config.h"
#include "checkpoint/hf/wrapped_weights.h"
#include "checkpoint/safetensors/convert_values.h"
#include "checkpoint/state/saved_config.h"
#include "checkpoint/state/step_folders.h"
#include "files/file.h"
#include "tensor/remainder.h"

#include <algorithm>
#include <vector>

namespace echelon {
namespace {

/// The model that a run left in or below the folder.
std::string hint_for_model(const std::filesystem::path& folder) {
  if (const auto model = folder / "model"; has_target(model / "config.json"))
    return fmt::format(" (did you mean {}?)", model.string());
  for (const std::filesystem::path& base : {folder, folder / "checkpoint"})
    if (const auto step = latest_step(base))
      return fmt::format(" (did you mean {}?)", step_folder(base, *step).string());
  return "";
}

/// A config of a few bytes may claim any number of layers, and a plan takes time for each.
void require_layers(const ModelSpec& model, std::int64_t num_tensors, const std::filesystem::path& folder) {
  require(model.num_hidden_layers <= num_tensors, "{} has {} tensors, too few for the {} layers of its config",
          folder.string(), num_tensors, model.num_hidden_layers);
}

/// A folder may lack its weights, or have some that cannot be read: the model can still be trained from the start.
void meet_weights(ModelSpec& model, const std::filesystem::path& folder) {
  constexpr std::int64_t most_without_weights = 1000;
  if (!has_target(folder / single_file_name) && !has_target(folder / index_file_name)) return;
  try {
    const WeightFolder weights(folder);
    require_layers(model, std::ssize(weights.entries()), folder);
    untie_if_has_head(LanguageModelNames(folder, weights), weights, model);
  } catch (const Error&) {
    if (model.num_hidden_layers > most_without_weights) throw;
  }
}

/// Before anything is allocated for a model that a manifest claims.
void require_whole_model(const StateReader& reader, const ModelSpec& model) {
  const Manifest& manifest = reader.manifest();
  require_layers(model, std::ssize(manifest.parameters), reader.folder());
  for (const NamedShape& parameter : global_parameters(model))
    reader.require_parameter(parameter.name, parameter.sizes);
  const auto weight = std::ranges::find(manifest.states, "weight", &std::pair<std::string, DType>::first);
  require(weight != manifest.states.end(), "{} has no weights", reader.folder().string());
  reader.require_bytes(model.num_parameters() * size_of(weight->second));
}

std::variant<HuggingFaceReader, SavedWeights, MergedWeights> open(const std::filesystem::path& folder) {
  if (has_adapters(folder)) return MergedWeights(folder, {});
  if (is_checkpoint(folder)) return SavedWeights(folder);
  require_model(folder);
  return HuggingFaceReader(folder);
}

}  // namespace

void require_model(const std::filesystem::path& folder) {
  require(is_folder(folder), "{} is not a folder", folder.string());
  require(has_target(folder / "config.json"), "'{}' is not a model: it has no config.json, and it is no checkpoint{}",
          folder.string(), hint_for_model(folder));
}

SavedWeights::SavedWeights(const std::filesystem::path& folder)
    : reader_(std::make_shared<StateReader>(folder)), config_(config_of(reader_->manifest(), folder)) {
  require_whole_model(*reader_, config_.model);
}

void SavedWeights::read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const {
  const bool is_tied_head = name == "lm_head.weight" && config_.model.tie_word_embeddings;
  StateSlice weight = {.parameter = is_tied_head ? "model.embed_tokens.weight" : name,
                       .state = "weight",
                       .dtype = dtype,
                       .slice = slice};
  const std::int64_t count = slice.num_elements();
  if (dtype == DType::bfloat16 && config_.optimizer.store_param_remainders) {
    // The run's own bfloat16s, which round ties in another way.
    std::vector<float> joint(static_cast<std::size_t>(count));
    weight.dtype = DType::float32;
    reader_->read(weight, reinterpret_cast<std::byte*>(joint.data()));
    auto* upper = static_cast<std::uint16_t*>(out);
    for (std::size_t i = 0; i < joint.size(); ++i) upper[i] = split(joint[i]).upper;
  } else {
    reader_->read(weight, static_cast<std::byte*>(out));
  }
  require(first_not_finite(dtype, out, count) == count, "{}: '{}' holds a value that is NaN or infinite in {}",
          reader_->folder().string(), name, name_of(dtype));
}

ModelReader::ModelReader(const std::filesystem::path& folder) : source_(open(folder)) {}

const ModelSpec& ModelReader::spec() const {
  return std::visit([](const auto& source) -> const ModelSpec& { return source.spec(); }, source_);
}

void ModelReader::read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const {
  std::visit([&](const auto& source) { source.read(name, slice, dtype, out); }, source_);
}

void ModelReader::read_exactly(const std::string& name, const TensorSlice& slice, double* out) const {
  const auto* saved = std::get_if<SavedWeights>(&source_);
  if (saved == nullptr) return this->read(name, slice, DType::float64, out);
  const DType dtype = saved->config().training.dtype;
  std::vector<std::byte> values(static_cast<std::size_t>(slice.num_elements() * size_of(dtype)));
  saved->read(name, slice, dtype, values.data());
  convert_values(dtype, values.data(), DType::float64, reinterpret_cast<std::byte*>(out), slice.num_elements());
}

std::vector<float> ModelReader::router_bias() const {
  return std::visit([](const auto& source) { return source.router_bias(); }, source_);
}

std::string ModelReader::note() const {
  if (const auto* merged = std::get_if<MergedWeights>(&source_)) return merged->base().note();
  const auto* folder = std::get_if<HuggingFaceReader>(&source_);
  return folder != nullptr ? folder->note() : "";
}

bool has_adapters(const std::filesystem::path& folder) {
  if (is_checkpoint(folder)) return config_of(read_manifest(folder), folder).lora.exists();
  return is_adapter_folder(folder);
}

std::filesystem::path base_of_adapters(const std::filesystem::path& folder) {
  std::filesystem::path base = read_adapter_base(folder);
  require(!is_adapter_folder(base), "'{}' has adapters, which are no base", base.string());
  return base;
}

bool is_checkpoint(const std::filesystem::path& folder) { return find_manifest(folder).has_value(); }

ModelSpec read_model_spec(const std::filesystem::path& folder) {
  if (is_checkpoint(folder)) {
    const Manifest manifest = read_manifest(folder);
    ModelSpec model = config_of(manifest, folder).model;
    require_layers(model, std::ssize(manifest.parameters), folder);
    return model;
  }
  if (is_adapter_folder(folder)) return read_model_spec(base_of_adapters(folder));
  require_model(folder);
  ModelSpec model = read_config_json(folder);
  meet_weights(model, folder);
  return model;
}

std::string note_of_model(const std::filesystem::path& folder) {
  if (is_checkpoint(folder)) return "";
  return dropout_note(is_adapter_folder(folder) ? base_of_adapters(folder) : folder);
}

std::int64_t read_training_seq_len(const std::filesystem::path& folder) {
  if (is_checkpoint(folder)) return read_manifest(folder).scalars.seq_len;
  if (is_adapter_folder(folder)) return read_training_seq_len(base_of_adapters(folder));
  require_model(folder);
  return read_training_note(folder).seq_len;
}

double read_capacity_factor(const std::filesystem::path& folder) {
  if (is_checkpoint(folder)) return capacity_factor_of(config_of(read_manifest(folder), folder));
  if (is_adapter_folder(folder)) return read_capacity_factor(base_of_adapters(folder));
  require_model(folder);
  return read_training_note(folder).capacity_factor;
}

std::string note_of_capacity(double capacity_factor) {
  if (capacity_factor <= 0) return "";
  return fmt::format("no row is dropped: moe.capacity_factor = {} is for training", capacity_factor);
}

}  // namespace echelon
