#include "spec/lora/linear_layers.h"

#include "spec/families/family.h"
#include "spec/lora/lora.h"
#include "spec/parameter_list.h"

#include <algorithm>

namespace echelon {
namespace {

bool has_dense_mlps(const ModelSpec& model) {
  return model.mixture.num_layers_of(model.num_hidden_layers) < model.num_hidden_layers;
}

bool has_shared_experts(const ModelSpec& model) {
  return model.has_experts() && model.mixture.shared_expert_intermediate_size > 0;
}

std::vector<std::string_view> attention_layers(const ModelSpec& model) {
  if (!model.has_latents()) return {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"};
  std::vector<std::string_view> layers = {"self_attn.q_proj"};
  if (model.q_lora_rank > 0) layers = {"self_attn.q_a_proj", "self_attn.q_b_proj"};
  layers.insert(layers.end(),
                {"self_attn.kv_a_proj", "self_attn.k_rope_proj", "self_attn.kv_b_proj", "self_attn.o_proj"});
  return layers;
}

}  // namespace

std::vector<std::string_view> linear_layers(const ModelSpec& model) {
  std::vector<std::string_view> layers = attention_layers(model);
  if (has_dense_mlps(model)) {
    if (is_gated(model.mlp)) layers.emplace_back("mlp.gate_proj");
    layers.insert(layers.end(), {"mlp.up_proj", "mlp.down_proj"});
  }
  if (has_shared_experts(model))
    layers.insert(layers.end(),
                  {"mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj", "mlp.shared_expert.down_proj"});
  return layers;
}

std::string_view module_of(const ModelSpec& model, std::string_view layer) {
  const std::vector<WeightName>& of_layer = description_of(model.family).weights.of_layer;
  const auto found = std::ranges::find(of_layer, layer, &WeightName::parameter);
  return found == of_layer.end() ? layer : found->tensor;
}

std::vector<std::string_view> linear_modules(const ModelSpec& model) {
  std::vector<std::string_view> modules;
  for (const std::string_view layer : linear_layers(model))
    if (modules.empty() || modules.back() != module_of(model, layer)) modules.push_back(module_of(model, layer));
  return modules;
}

bool has_module(const ModelSpec& model, std::int64_t layer, std::string_view module) {
  ModelSpec one_layer = model.with_layers_of(model.kind_of(layer));
  one_layer.set_num_layers(1);
  return std::ranges::any_of(global_parameters(one_layer), [&](const NamedShape& parameter) {
    const std::string_view stem = std::string_view(parameter.name).substr(0, parameter.name.rfind('.')),
                           in_layer = layer_of(stem), own = module_of(model, in_layer);
    return in_layer != stem && (own == module || (own.starts_with(module) && own[module.size()] == '.'));
  });
}

std::int64_t narrowest_linear(const ModelSpec& model) {
  std::int64_t least = model.hidden_size;
  const auto add = [&](bool exists, std::int64_t width) {
    if (exists) least = std::min(least, width);
  };
  add(has_dense_mlps(model), model.intermediate_size);
  add(has_shared_experts(model), model.mixture.shared_expert_intermediate_size);
  add(model.has_latents(), model.kv_lora_rank);
  add(model.q_lora_rank > 0, model.q_lora_rank);
  return least;
}

}  // namespace echelon
