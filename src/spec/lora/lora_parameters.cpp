#include "spec/lora/lora_parameters.h"

#include "spec/lora/linear_layers.h"
#include "spec/lora/saved_modules.h"

#include <fmt/format.h>

#include <utility>

namespace echelon {
namespace {

constexpr std::string_view end_of_weight = ".weight";

/// visit(stem, weight, is_first) for each linear layer with an adapter; is_first: of those of its module.
template <class Visit>
void for_each_adapter(const ModelSpec& model, const LoraConfig& lora, Visit&& visit) {
  std::string module_before;
  for (const NamedShape& weight : global_parameters(model)) {
    if (!weight.name.ends_with(end_of_weight)) continue;
    const std::string stem = weight.name.substr(0, weight.name.size() - end_of_weight.size());
    const std::string_view layer = layer_of(stem);
    if (layer == stem || !has_adapter(lora, model, layer)) continue;
    std::string module = fmt::format("{}{}", stem.substr(0, stem.size() - layer.size()), module_of(model, layer));
    visit(stem, weight, module != module_before);
    module_before = std::move(module);
  }
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

std::vector<NamedShape> whole_parameters(const ModelSpec& model, const LoraConfig& lora) {
  if (lora.modules_to_save.empty()) return {};
  std::vector<NamedShape> parameters = global_parameters(model);
  std::erase_if(parameters, [&](const NamedShape& parameter) { return !is_saved_whole(lora, model, parameter.name); });
  return parameters;
}

std::string weight_of_adapter(const std::string& parameter) {
  constexpr std::string_view end = ".lora_A.weight";
  return parameter.substr(0, parameter.size() - end.size()) + std::string(end_of_weight);
}

std::vector<NamedShape> saved_parameters(const ModelSpec& model, const LoraConfig& lora) {
  if (!lora.exists()) return global_parameters(model);
  std::vector<NamedShape> parameters = adapter_parameters(model, lora);
  for (NamedShape& whole : whole_parameters(model, lora)) parameters.push_back(std::move(whole));
  return parameters;
}

}  // namespace echelon
