#include "spec/lora/saved_modules.h"

#include "base/error.h"
#include "base/text/similar.h"
#include "spec/families/family.h"
#include "spec/lora/linear_layers.h"
#include "spec/lora/routed_modules.h"
#include "spec/parameter_list.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::string_view head = "lm_head";

std::string_view last_name_of(std::string_view module) { return module.substr(module.rfind('.') + 1); }

/// Of a module and of those that it is in, from the innermost.
template <class Holds>
bool any_around(std::string_view module, Holds&& holds) {
  while (!holds(module)) {
    const std::size_t dot = module.rfind('.');
    if (dot == std::string_view::npos) return false;
    module = module.substr(0, dot);
  }
  return true;
}

bool ends_module(std::string_view name, std::string_view module) {
  return any_around(module, [&](std::string_view around) { return around.ends_with(name); });
}

/// At a dot.
bool is_part_of(std::string_view name, std::string_view module) {
  return any_around(module, [&](std::string_view around) {
    return around == name || (around.ends_with(name) && around[around.size() - name.size() - 1] == '.');
  });
}

std::string in_layers(const ModelSpec& model, std::string_view module) {
  return fmt::format("{}*.{}", description_of(model.family).weights.layers, module);
}

/// Of all parameters that may be trained whole, each once.
std::vector<std::string> all_modules(const ModelSpec& model) {
  std::vector<std::string> modules;
  for (const LayerKind& kind : model.layer_kinds()) {
    ModelSpec one_layer = model.with_layers_of(kind);
    one_layer.set_num_layers(1);
    for (const NamedShape& parameter : global_parameters(one_layer)) {
      const std::string_view stem = std::string_view(parameter.name).substr(0, parameter.name.rfind('.'));
      if (!routed_module_of(layer_of(stem)).empty()) continue;
      if (std::string module = module_of_parameter(model, parameter.name);
          std::ranges::find(modules, module) == modules.end())
        modules.push_back(std::move(module));
    }
  }
  if (model.tie_word_embeddings) modules.emplace_back(head);
  return modules;
}

/// The fused module that has a layer which other families name so; empty: none.
std::string_view fused_module_with(const ModelSpec& model, std::string_view name) {
  for (const std::string_view layer : linear_layers(model))
    if (is_part_of(name, layer)) return last_name_of(module_of(model, layer));
  return {};
}

std::string closest_module(const std::string& name, const std::vector<std::string>& modules) {
  std::vector<std::string_view> valid;
  for (const std::string& module : modules) valid.push_back(last_name_of(module));
  return std::string(closest_name(name, valid));
}

/// Whatever else a name stands for, it may not stand for a part of a mixture that keeps its weights.
void check_routed(const std::string& name, const ModelSpec& model, const std::vector<std::string>& modules,
                  bool is_known) {
  if (name.empty()) return;
  const std::string_view words = routed_words(model, name);
  const bool has_some = std::ranges::any_of(
      routed_modules(model), [&](std::string_view routed) { return ends_module(name, in_layers(model, routed)); });
  require(words.empty() || (is_known && !has_some),
          "lora.modules_to_save = '{}' is {}, which stays as it is next to adapters (use '{}')", name, words,
          closest_module(name, modules));
  require(
      !has_some,
      "lora.modules_to_save = '{}' has routed experts or their router in it, which stay as they are next to adapters "
      "(use '{}')",
      name, closest_module(name, modules));
}

void check_name(const std::string& name, const ModelSpec& model, const std::vector<std::string>& modules) {
  const std::string_view family = description_of(model.family).model_type;
  const bool is_known = !name.empty() && name.find('*') == std::string::npos &&
                        std::ranges::any_of(modules, [&](const auto& module) { return ends_module(name, module); });
  check_routed(name, model, modules, is_known);
  if (!is_known) {
    const std::string_view fused = name.empty() ? std::string_view() : fused_module_with(model, name);
    require(fused.empty(), "lora.modules_to_save = '{}' is a part of {}, which is one module in files of {} (use '{}')",
            name, fused, family, fused);
    throw Error(fmt::format("lora.modules_to_save = '{}' is not a module of {}, or of some layers alone (use '{}')",
                            name, family, closest_module(name, modules)));
  }
  // PEFT ties the head by its whole name, and would copy one that it finds by another.
  require(!model.tie_word_embeddings || !head.ends_with(name) || name == head,
          "lora.modules_to_save = '{}' is the end of the name of a tied head (use '{}')", name, head);
}

}  // namespace

std::string module_of_parameter(const ModelSpec& model, std::string_view parameter) {
  const std::string_view stem = parameter.substr(0, parameter.rfind('.')), in_layer = layer_of(stem);
  if (in_layer != stem) {
    const std::string_view routed = routed_module_of(in_layer);
    return in_layers(model, routed.empty() ? module_of(model, in_layer) : routed);
  }
  if (stem == head) return std::string(head);  // whatever the files of the model name it
  const std::vector<WeightName>& of_model = description_of(model.family).weights.of_model;
  const auto found = std::ranges::find(of_model, stem, &WeightName::parameter);
  return std::string(found == of_model.end() ? stem : found->tensor);
}

bool is_saved_whole(const LoraConfig& lora, const ModelSpec& model, std::string_view parameter) {
  if (lora.modules_to_save.empty() || is_of_adapter(parameter)) return false;
  const std::string module = module_of_parameter(model, parameter);
  const bool is_head_too = model.tie_word_embeddings && parameter == tied_weight;
  return std::ranges::any_of(lora.modules_to_save, [&](const std::string& name) {
    return ends_module(name, module) || (is_head_too && name == head);
  });
}

bool saves_tied_weight(const LoraConfig& lora, const ModelSpec& model) {
  return model.tie_word_embeddings && is_saved_whole(lora, model, tied_weight);
}

bool is_kept_from_adapters(const LoraConfig& lora, const ModelSpec& model, std::string_view module) {
  if (lora.modules_to_save.empty()) return false;
  const std::string whole = in_layers(model, module);
  return std::ranges::any_of(lora.modules_to_save, [&](const std::string& name) { return is_part_of(name, whole); });
}

void check_modules_to_save(const LoraConfig& lora, const ModelSpec& model) {
  if (lora.modules_to_save.empty()) return;
  const std::vector<std::string> modules = all_modules(model);
  for (const std::string& name : lora.modules_to_save) check_name(name, model, modules);
  const std::vector<std::string_view> adapted = adapted_modules(lora, model);
  require(!adapted.empty(), "lora.modules_to_save = '{}' leaves no layer of lora.target_modules = '{}' (use '{}')",
          fmt::join(lora.modules_to_save, ","), fmt::join(lora.target_modules, ","), head);
  for (const std::string& name : lora.modules_to_save)
    for (const std::string_view module : adapted)
      require(!ends_module(name, in_layers(model, module)),
              "lora.modules_to_save = '{}' is the end of the name of {}, which has an adapter (use '{}')", name, module,
              last_name_of(module));
}

}  // namespace echelon
