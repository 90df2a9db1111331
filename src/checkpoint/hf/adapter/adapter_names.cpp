#include "checkpoint/hf/adapter/adapter_names.h"

#include <fmt/format.h>

#include <set>

namespace echelon {
namespace {

constexpr std::string_view weight_suffix = ".weight", prefix = "base_model.model.";

/// In PEFT's names.
std::string tensor_of(const FilePlace& place, std::string_view which) {
  return fmt::format("{}{}.{}.weight", prefix, place.tensor.substr(0, place.tensor.size() - weight_suffix.size()),
                     which);
}

FilePlace as_module(FilePlace place, std::string_view parameter) {
  place.tensor = fmt::format("{}{}", prefix, parameter == head_weight ? head_weight : place.tensor);
  return place;
}

/// In the order of the tensors.
std::vector<NamedShape> parameters_in_file(const ModelSpec& model, const LoraConfig& lora) {
  std::vector<NamedShape> parameters = saved_parameters(model, lora);
  if (saves_tied_weight(lora, model))
    parameters.push_back({std::string(head_weight), {model.vocab_size, model.hidden_size}});
  return parameters;
}

}  // namespace

std::string name_of_a(const ModelSpec& model, const std::string& layer) {
  const std::string_view own = layer_of(layer);
  const std::vector<std::string_view> layers = linear_layers(model);
  const auto first = std::ranges::find_if(
      layers, [&](std::string_view other) { return module_of(model, other) == module_of(model, own); });
  return fmt::format("{}{}.lora_A.weight", layer.substr(0, layer.size() - own.size()), *first);
}

std::map<std::string, PlacedParameter, std::less<>> placed_adapters(const ModelSpec& model, const LoraConfig& lora) {
  const auto places = placed_parameters(model);
  std::map<std::string, PlacedParameter, std::less<>> placed;
  for (const auto& [name, sizes] : parameters_in_file(model, lora)) {
    if (!is_of_adapter(name)) {
      placed[name] = {sizes, as_module(places.at(name).place, name)};
      continue;
    }
    const FilePlace& place = places.at(weight_of_adapter(name)).place;
    if (name.ends_with(".lora_A.weight")) {
      placed[name] = {sizes, {.tensor = tensor_of(place, "lora_A"), .sizes = sizes}};
      continue;
    }
    const std::int64_t rows = place.transposed ? place.sizes[1] : place.sizes[0];
    placed[name] = {sizes, {.tensor = tensor_of(place, "lora_B"), .sizes = {rows, lora.rank}, .rows = place.rows}};
  }
  return placed;
}

std::vector<NamedShape> adapter_tensors(const ModelSpec& model, const LoraConfig& lora) {
  const auto placed = placed_adapters(model, lora);
  std::vector<NamedShape> tensors;
  std::set<std::string> names;
  for (const NamedShape& parameter : parameters_in_file(model, lora)) {
    const FilePlace& place = placed.at(parameter.name).place;
    if (names.insert(place.tensor).second) tensors.push_back({place.tensor, place.sizes});
  }
  return tensors;
}

}  // namespace echelon
