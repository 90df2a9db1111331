#include "checkpoint/hf/hf_reader.h"

#include "base/error.h"
#include "base/text/counted.h"
#include "base/text/printable.h"
#include "checkpoint/hf/config/model_config.h"
#include "checkpoint/hf/slice_io.h"
#include "checkpoint/safetensors/convert_values.h"
#include "spec/families/family.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

namespace echelon {
namespace {

std::string head_of(const ModelSpec& model) {
  const std::vector<WeightName>& names = description_of(model.family).weights.of_model;
  const auto head = std::ranges::find(names, "lm_head", &WeightName::parameter);
  return fmt::format("{}.weight", head == names.end() ? "lm_head" : head->tensor);
}

// Buffers that older versions of transformers saved, and the head of a tied model: they are not needed.
bool is_redundant(std::string_view name, const ModelSpec& model) {
  const bool is_tied_head = model.tie_word_embeddings && name == head_of(model);
  constexpr std::string_view buffers[] = {".attn.bias", ".attn.masked_bias", ".attention.bias",
                                          ".attention.masked_bias", ".rotary_emb.inv_freq"};
  return is_tied_head || std::ranges::any_of(buffers, [&](std::string_view buffer) { return name.ends_with(buffer); });
}

/// Of a layer after the last one, which predicts a further token (DeepSeek-V3, section 2.2).
bool predicts_further(std::string_view name, const ModelSpec& model) {
  constexpr std::string_view layers = "layers.";
  const auto at = name.find(layers);
  if (!description_of(model.family).has_latents || at == std::string_view::npos) return false;
  std::int64_t layer = 0;
  const std::string_view digits = name.substr(at + layers.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
  return error == std::errc() && end != digits.data() + digits.size() && *end == '.' &&
         layer >= model.num_hidden_layers;
}

/// A few bytes of config.json may claim any number of layers.
void require_layers(const ModelSpec& spec, const WeightFolder& weights, const std::filesystem::path& folder) {
  require(spec.num_hidden_layers <= std::ssize(weights.entries()),
          "{} has {} tensors, too few for the {} layers of its config", folder.string(), weights.entries().size(),
          spec.num_hidden_layers);
  const std::int64_t num_experts = spec.mixture.num_layers_of(spec.num_hidden_layers) * spec.mixture.num_experts;
  require(num_experts <= std::ssize(weights.entries()), "{} has {} tensors, too few for the {} experts of its config",
          folder.string(), weights.entries().size(), num_experts);
}

/// By samples, which take no time in any model.
bool have_same_values(const std::filesystem::path& folder, const WeightFolder::Entry& a, const WeightFolder::Entry& b) {
  constexpr std::int64_t num_samples = 64, most = 4096;
  if (a.tensor.format != b.tensor.format || a.tensor.num_bytes != b.tensor.num_bytes) return false;
  const File file_a = File::open_in_folder(folder, a.path.filename().string());
  const File file_b = File::open_in_folder(folder, b.path.filename().string());
  const std::int64_t size = std::min(most, a.tensor.num_bytes), step = (a.tensor.num_bytes - size) / (num_samples - 1);
  std::vector<std::byte> bytes_a(static_cast<std::size_t>(size)), bytes_b(bytes_a.size());
  for (std::int64_t i = 0; i < num_samples; ++i) {
    file_a.read_at(a.tensor.first_byte + i * step, bytes_a.data(), size);
    file_b.read_at(b.tensor.first_byte + i * step, bytes_b.data(), size);
    if (bytes_a != bytes_b) return false;
  }
  return true;
}

}  // namespace

HuggingFaceReader::HuggingFaceReader(const std::filesystem::path& folder)
    : folder_(folder),
      spec_(read_config_json(folder)),
      weights_(WeightFolder::with_separate_experts(folder, spec_)),
      names_(folder, weights_) {
  untie_if_has_head(names_, weights_, spec_);
  require_layers(spec_, weights_, folder);
  parameters_ = placed_parameters(spec_);
  for (const NamedShape& expected : file_tensors(spec_)) {
    const auto* entry = find(expected.name);
    require(entry != nullptr, "{} has no tensor '{}' {}, which its config.json requires", folder_.string(),
            names_.in_file(expected.name), to_string(expected.sizes));
    require(entry->tensor.shape == file_shape(expected.sizes), "{}: tensor '{}' is {}, but config.json makes it {}",
            entry->path.string(), expected.name, to_string(entry->tensor.shape), to_string(expected.sizes));
    require(entry->tensor.dtype.has_value() && entry->tensor.dtype != DType::int32,
            "{}: tensor '{}' has dtype {}; weights are F32, F64, BF16 or F16", entry->path.string(), expected.name,
            entry->tensor.format);
  }
  require_no_other_experts();
  require_no_others();
  require_same_head();
}

// transformers takes such a head instead of the embedding, or the other way round, which depends on its version.
void HuggingFaceReader::require_same_head() const {
  const WeightFolder::Entry* head = spec_.tie_word_embeddings ? weights_.find(head_of(spec_)) : nullptr;
  if (head == nullptr) return;
  const std::string& embedding = parameters_.find("model.embed_tokens.weight")->second.place.tensor;
  require(have_same_values(folder_, *head, *find(embedding)),
          "{}: tensor '{}' differs from '{}', but config.json has tie_word_embeddings = true (use false)",
          head->path.string(), head_of(spec_), embedding);
}

void HuggingFaceReader::require_no_others() const {
  std::set<const WeightFolder::Entry*> used;
  for (const NamedShape& expected : file_tensors(spec_)) used.insert(find(expected.name));
  std::vector<std::string> others;
  for (const auto& [name, entry] : weights_.entries())
    if (names_.are_of(name) && !used.contains(&entry) && !is_redundant(name, spec_) && !predicts_further(name, spec_))
      others.push_back(printable(name, 200));
  constexpr std::size_t most_named = 3;
  const std::size_t num = others.size();
  others.resize(std::min(num, most_named));
  require(num == 0,
          "{} has {} that its config.json does not ask for: {}{} (use the config.json of these "
          "weights, or remove what is not of the model)",
          folder_.string(), counted(num, "tensor"), fmt::join(others, ", "), num > most_named ? ", ..." : "");
}

// Base models are saved without the prefix that the same model with a head has.
const WeightFolder::Entry* HuggingFaceReader::find(std::string_view tensor) const {
  const std::string_view base = description_of(spec_.family).weights.base;
  const auto* entry = weights_.find(names_.in_file(tensor));
  const bool has_prefix = !names_.are_wrapped() && tensor.starts_with(base);
  return entry != nullptr || !has_prefix ? entry : weights_.find(tensor.substr(base.size()));
}

// A model with more experts than its config.json says would be read without some of them.
void HuggingFaceReader::require_no_other_experts() const {
  if (!spec_.mixture.exists()) return;
  std::set<std::string> known;
  for (const NamedShape& expected : file_tensors(spec_)) known.insert(expected.name);
  for (const auto& [name, entry] : weights_.entries()) {
    if (name.find(".experts.") == std::string::npos || predicts_further(name, spec_)) continue;
    require(known.contains(name) || known.contains("model." + name),
            "{} has tensor '{}', but its config.json has no such expert (use its number of experts)",
            entry.path.string(), printable(name, 200));
    require(known.contains(name) || weights_.find("model." + name) == nullptr,
            "{} has an expert twice, in '{}' and in 'model.{}' (remove one of them)", entry.path.string(),
            printable(name, 200), printable(name, 200));
  }
}

void HuggingFaceReader::read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const {
  const auto found = parameters_.find(name);
  require(found != parameters_.end(), "{} has no parameter '{}'", folder_.string(), name);
  const auto& [sizes, place] = found->second;
  require(slice.global_sizes() == sizes, "{}: '{}' is {} (tensor '{}'), but the model that reads it has {}",
          folder_.string(), name, to_string(sizes), place.tensor, to_string(slice.global_sizes()));
  if (slice.is_padded()) std::memset(out, 0, static_cast<std::size_t>(slice.num_elements() * size_of(dtype)));
  for (const auto& [tensor, part, first] : found->second.parts_of(slice)) {
    const WeightFolder::Entry& entry = *find(tensor);
    std::byte* const to = static_cast<std::byte*>(out) + first * size_of(dtype);
    read_slice(File::open_in_folder(folder_, entry.path.filename().string()), entry.tensor, place, part, dtype, to);
    const std::int64_t count = part.num_elements();
    require(first_not_finite(dtype, to, count) == count, "{}: tensor '{}' holds a value that is NaN or infinite in {}",
            entry.path.string(), tensor, name_of(dtype));
  }
}

std::vector<float> HuggingFaceReader::router_bias() const {
  std::vector<float> biases;
  for (const NamedShape& bias : router_biases(spec_)) {
    const std::size_t first = biases.size();
    biases.resize(first + static_cast<std::size_t>(bias.sizes[0]));
    read(bias.name, TensorSlice(bias.sizes), DType::float32, biases.data() + first);
  }
  return biases;
}

std::map<std::string, DType> HuggingFaceReader::dtypes() const {
  std::map<std::string, DType> dtypes;
  for (const NamedShape& each : file_tensors(spec_)) dtypes[each.name] = *find(each.name)->tensor.dtype;
  return dtypes;
}

std::string HuggingFaceReader::note() const {
  std::vector<std::string> parts;
  const auto further = [&](const auto& entry) { return predicts_further(entry.first, spec_); };
  if (const auto num = std::ranges::count_if(weights_.entries(), further); num > 0)
    parts.push_back(
        fmt::format("{} has layers that predict further tokens, whose {} tensors are left out", folder_.string(), num));
  if (std::string dropout = dropout_note(folder_); !dropout.empty()) parts.push_back(std::move(dropout));
  if (!has_rope_of_version_4(spec_))
    parts.push_back("rope_parameters.sliding_attention is read by transformers 5 alone: version 4 has no such RoPE");
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::int64_t HuggingFaceReader::num_other_tensors() const {
  return std::ranges::count_if(weights_.entries(), [&](const auto& entry) { return !names_.are_of(entry.first); });
}

}  // namespace echelon
