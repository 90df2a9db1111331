#include "spec/lora/routed_modules.h"

#include "spec/lora/linear_layers.h"

#include <algorithm>
#include <string>

namespace echelon {
namespace {

constexpr std::string_view router = "mlp.gate", experts = "mlp.experts", shared_gate = "mlp.shared_expert_gate";

bool is_end_of(std::string_view name, std::string_view module) {
  return !name.empty() && module.ends_with(name) &&
         (module.size() == name.size() || module[module.size() - name.size() - 1] == '.');
}

/// "experts.{}.w1" of "experts.3.w1".
std::string without_indices(std::string_view name) {
  std::string result;
  while (!name.empty()) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    const std::string_view part = name.substr(0, dot);
    const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    result += is_index ? "{}" : part;
    name.remove_prefix(dot);
    if (name.empty()) break;
    result += '.';
    name.remove_prefix(1);
  }
  return result;
}

}  // namespace

std::vector<std::string_view> routed_modules(const ModelSpec& model) {
  if (!model.has_experts()) return {};
  std::vector<std::string_view> modules = {router, experts};
  if (model.mixture.gates_shared_expert) modules.push_back(shared_gate);
  return modules;
}

std::string_view routed_module_of(std::string_view parameter) {
  if (parameter.starts_with("mlp.experts.")) return experts;
  for (const std::string_view module : {router, shared_gate})
    if (parameter == module) return module;
  return {};
}

std::string_view routed_words(const ModelSpec& model, std::string_view name) {
  if (!model.has_experts()) return {};
  const std::string wanted = without_indices(name);
  const auto names_one_of = [&](const std::vector<std::string>& modules) {
    return std::ranges::any_of(modules, [&](const std::string& module) { return is_end_of(wanted, module); });
  };
  std::vector<std::string> of_experts = {std::string(experts), "mlp.experts.{}", "mlp.experts.gate_up_proj",
                                         "mlp.experts.down_proj"};
  for (const std::string_view layer : {"mlp.experts.gate_proj", "mlp.experts.up_proj", "mlp.experts.down_proj"}) {
    const std::string in_file(module_of(model, layer));
    of_experts.insert(of_experts.end(), {std::string(layer), in_file});
    for (const std::size_t end : {in_file.rfind('.'), in_file.find(".{}")})
      of_experts.push_back(in_file.substr(0, end));
  }
  if (names_one_of(of_experts)) return "a part of the routed experts";
  if (names_one_of({std::string(router), std::string(module_of(model, router))})) return "the router";
  if (model.mixture.gates_shared_expert && names_one_of({std::string(shared_gate)})) return "the shared expert's gate";
  return {};
}

}  // namespace echelon
