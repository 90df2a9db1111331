#include "spec/lora/lora.h"

#include "base/error.h"
#include "base/text/similar.h"
#include "spec/families/family.h"
#include "spec/lora/linear_layers.h"
#include "spec/lora/routed_modules.h"
#include "spec/lora/saved_modules.h"

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

constexpr std::string_view all_linear = "all-linear";

bool names(const std::vector<std::string>& list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

std::string_view short_name(std::string_view module) { return module.substr(module.rfind('.') + 1); }

/// As PEFT: a target is a whole name or its end.
bool is_named_by(std::string_view target, std::string_view module) {
  return module == target ||
         (module.ends_with(target) && !target.empty() && module[module.size() - target.size() - 1] == '.');
}

bool targets(const LoraConfig& lora, const ModelSpec& model, std::string_view module) {
  const bool is_named =
      names(lora.target_modules, all_linear) ||
      std::ranges::any_of(lora.target_modules, [&](const std::string& target) { return is_named_by(target, module); });
  return is_named && !is_kept_from_adapters(lora, model, module);
}

/// The fused module that has a layer which other families name so; empty: none.
std::string_view module_that_has(const ModelSpec& model, std::string_view name) {
  for (const std::string_view layer : linear_layers(model))
    if (is_named_by(name, layer)) return short_name(module_of(model, layer));
  return {};
}

void check_targets(const LoraConfig& lora, const ModelSpec& model) {
  const std::vector<std::string_view> modules = linear_modules(model);
  std::vector<std::string_view> valid;
  for (const std::string_view module : modules) valid.push_back(short_name(module));
  require(!lora.target_modules.empty(), "lora.target_modules = [] gives no layer an adapter (use '{}')", all_linear);
  require(!names(lora.target_modules, all_linear) || lora.target_modules.size() == 1,
          "lora.target_modules names '{}' and others; all linear layers have them already (use '{}')", all_linear,
          all_linear);
  for (const std::string& target : lora.target_modules) {
    if (target == all_linear ||
        std::ranges::any_of(modules, [&](std::string_view module) { return is_named_by(target, module); }))
      continue;
    const std::string_view routed = routed_words(model, target);
    require(routed.empty(), "lora.target_modules = '{}' is {} of {}, and has no adapter (use '{}')", target, routed,
            description_of(model.family).model_type, closest_name(target, valid));
    const std::string_view fused = module_that_has(model, target);
    require(fused.empty(), "lora.target_modules = '{}' is a part of {}, which is one module in files of {} (use '{}')",
            target, fused, description_of(model.family).model_type, fused);
    throw Error(fmt::format("lora.target_modules = '{}' is not a linear layer of a block of {} (use '{}')", target,
                            description_of(model.family).model_type, closest_name(target, valid)));
  }
}

}  // namespace

double LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return use_rslora ? alpha / std::sqrt(r) : alpha / r;
}

std::vector<std::string_view> adapted_modules(const LoraConfig& lora, const ModelSpec& model) {
  std::vector<std::string_view> modules;
  for (const std::string_view module : linear_modules(model))
    if (targets(lora, model, module)) modules.push_back(module);
  return modules;
}

std::vector<std::string> targets_of(const std::vector<std::string_view>& modules, const ModelSpec& model) {
  if (modules == linear_modules(model)) return {std::string(all_linear)};
  return names_of(modules, model);
}

std::vector<std::string> names_of(const std::vector<std::string_view>& modules, const ModelSpec& model) {
  const std::vector<std::string_view> all = linear_modules(model);
  const auto has = [&](std::string_view module) { return std::ranges::find(modules, module) != modules.end(); };
  std::vector<std::string> list;
  for (const std::string_view module : modules) {
    const bool is_enough =
        routed_words(model, short_name(module)).empty() && std::ranges::all_of(all, [&](std::string_view other) {
          return short_name(other) != short_name(module) || has(other);
        });
    std::string name(is_enough ? short_name(module) : module);
    if (!names(list, name)) list.push_back(std::move(name));
  }
  return list;
}

std::string_view layer_of(std::string_view name) {
  if (constexpr std::string_view layers = "model.layers."; name.starts_with(layers))
    name.remove_prefix(name.find('.', layers.size()) + 1);
  return name;
}

bool has_adapter(const LoraConfig& lora, const ModelSpec& model, std::string_view layer) {
  const std::vector<std::string_view> layers = linear_layers(model);
  if (!lora.exists() || std::ranges::find(layers, layer) == layers.end()) return false;
  return targets(lora, model, module_of(model, layer));
}

bool is_of_adapter(std::string_view parameter) {
  return parameter.ends_with(".lora_A.weight") || parameter.ends_with(".lora_B.weight");
}

bool is_trained(const LoraConfig& lora, const ModelSpec& model, std::string_view parameter) {
  return !lora.exists() || is_of_adapter(parameter) || is_saved_whole(lora, model, parameter);
}

void validate(const LoraConfig& lora, const ModelSpec& model) {
  if (!lora.exists()) {
    require(lora.initial_load_path.empty(),
            "lora.initial_load_path = '{}' needs lora.rank and lora.alpha: its adapter_config.json has them as r and "
            "lora_alpha",
            lora.initial_load_path);
    require(lora == LoraConfig(), "[lora] does not apply: lora.rank = 0 makes no adapters (use lora.rank = 8)");
    return;
  }
  const std::int64_t most = narrowest_linear(model);
  require(lora.rank <= most, "lora.rank = {} is more than the {} columns of a linear layer (use {})", lora.rank, most,
          most);
  require(lora.alpha > 0, "lora.alpha = {} adds nothing to the weights (use 16)", lora.alpha);
  check_targets(lora, model);
  check_modules_to_save(lora, model);
}

}  // namespace echelon
