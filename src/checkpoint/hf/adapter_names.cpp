#include "checkpoint/hf/adapter_names.h"

#include <fmt/format.h>

#include <set>

namespace echelon {
namespace {

constexpr std::string_view weight_suffix = ".weight";

/// visit(stem, weight, is_first) for each linear layer with an adapter; is_first: of those of its module.
template <class Visit>
void for_each_adapter(const ModelSpec& model, const LoraConfig& lora, Visit&& visit) {
  std::string module_before;
  for (const NamedShape& weight : global_parameters(model)) {
    if (!weight.name.ends_with(weight_suffix)) continue;
    const std::string stem = weight.name.substr(0, weight.name.size() - weight_suffix.size());
    const std::string_view layer = layer_of(stem);
    if (layer == stem || !has_adapter(lora, model, layer)) continue;
    std::string module = fmt::format("{}{}", stem.substr(0, stem.size() - layer.size()), module_of(model, layer));
    visit(stem, weight, module != module_before);
    module_before = std::move(module);
  }
}

/// In PEFT's names.
std::string tensor_of(const FilePlace& place, std::string_view which) {
  return fmt::format("base_model.model.{}.{}.weight",
                     place.tensor.substr(0, place.tensor.size() - weight_suffix.size()), which);
}

}  // namespace

std::vector<NamedShape> adapter_parameters(const ModelSpec& model, const LoraConfig& lora) {
  std::vector<NamedShape> parameters;
  for_each_adapter(model, lora, [&](const std::string& stem, const NamedShape& weight, bool is_first) {
    if (is_first) parameters.push_back({stem + ".lora_A.weight", {lora.rank, weight.sizes[1]}});
    parameters.push_back({stem + ".lora_B.weight", {weight.sizes[0], lora.rank}});
  });
  return parameters;
}

std::string name_of_a(const ModelSpec& model, const std::string& layer) {
  const std::string_view own = layer_of(layer);
  const std::vector<std::string_view> layers = linear_layers(model);
  const auto first = std::ranges::find_if(
      layers, [&](std::string_view other) { return module_of(model, other) == module_of(model, own); });
  return fmt::format("{}{}.lora_A.weight", layer.substr(0, layer.size() - own.size()), *first);
}

std::vector<NamedShape> saved_parameters(const ModelSpec& model, const LoraConfig& lora) {
  return lora.exists() ? adapter_parameters(model, lora) : global_parameters(model);
}

std::map<std::string, PlacedParameter, std::less<>> placed_adapters(const ModelSpec& model, const LoraConfig& lora) {
  const auto places = placed_parameters(model);
  std::map<std::string, PlacedParameter, std::less<>> placed;
  for_each_adapter(model, lora, [&](const std::string& stem, const NamedShape& weight, bool is_first) {
    const FilePlace& place = places.at(weight.name).place;
    const Sizes a = {lora.rank, weight.sizes[1]}, b = {weight.sizes[0], lora.rank};
    const std::int64_t rows = place.transposed ? place.sizes[1] : place.sizes[0];
    if (is_first) placed[stem + ".lora_A.weight"] = {a, {.tensor = tensor_of(place, "lora_A"), .sizes = a}};
    placed[stem + ".lora_B.weight"] = {
        b, {.tensor = tensor_of(place, "lora_B"), .sizes = {rows, lora.rank}, .rows = place.rows}};
  });
  return placed;
}

std::vector<NamedShape> adapter_tensors(const ModelSpec& model, const LoraConfig& lora) {
  const auto placed = placed_adapters(model, lora);
  std::vector<NamedShape> tensors;
  std::set<std::string> names;
  for (const NamedShape& parameter : adapter_parameters(model, lora)) {
    const FilePlace& place = placed.at(parameter.name).place;
    if (names.insert(place.tensor).second) tensors.push_back({place.tensor, place.sizes});
  }
  return tensors;
}

}  // namespace echelon
