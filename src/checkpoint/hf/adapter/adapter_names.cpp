#include "checkpoint/hf/adapter/adapter_names.h"

#include "spec/lora/linear_layers.h"

#include <fmt/format.h>

#include <set>

namespace echelon {
namespace {

constexpr std::string_view weight_suffix = ".weight";

/// In PEFT's names.
std::string tensor_of(const FilePlace& place, std::string_view which, const LanguageModelNames& names) {
  const std::string module = place.tensor.substr(0, place.tensor.size() - weight_suffix.size());
  return fmt::format("{}{}.{}.weight", peft_prefix, names.in_file(module), which);
}

FilePlace as_module(FilePlace place, std::string_view parameter, const LanguageModelNames& names) {
  place.tensor = fmt::format("{}{}", peft_prefix, names.in_file(parameter == head_weight ? head_weight : place.tensor));
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

std::map<std::string, PlacedParameter, std::less<>> placed_adapters(const ModelSpec& model, const LoraConfig& lora,
                                                                    const LanguageModelNames& names) {
  const auto places = placed_parameters(model);
  std::map<std::string, PlacedParameter, std::less<>> placed;
  for (const auto& [name, sizes] : parameters_in_file(model, lora)) {
    if (!is_of_adapter(name)) {
      placed[name] = {sizes, as_module(places.at(name).place, name, names)};
      continue;
    }
    const FilePlace& place = places.at(weight_of_adapter(name)).place;
    if (name.ends_with(".lora_A.weight")) {
      placed[name] = {sizes, {.tensor = tensor_of(place, "lora_A", names), .sizes = sizes}};
      continue;
    }
    const std::int64_t rows = place.transposed ? place.sizes[1] : place.sizes[0];
    placed[name] = {sizes,
                    {.tensor = tensor_of(place, "lora_B", names), .sizes = {rows, lora.rank}, .rows = place.rows}};
  }
  return placed;
}

std::vector<NamedShape> adapter_tensors(const ModelSpec& model, const LoraConfig& lora,
                                        const LanguageModelNames& names) {
  const auto placed = placed_adapters(model, lora, names);
  std::vector<NamedShape> tensors;
  std::set<std::string> taken;
  for (const NamedShape& parameter : parameters_in_file(model, lora)) {
    const FilePlace& place = placed.at(parameter.name).place;
    if (taken.insert(place.tensor).second) tensors.push_back({place.tensor, place.sizes});
  }
  return tensors;
}

LanguageModelNames names_of_adapters(const std::map<std::string, FileTensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(peft_prefix)) names.push_back(name.substr(peft_prefix.size()));
  return LanguageModelNames::of(names);
}

}  // namespace echelon
