#include "checkpoint/hf/stacked_experts.h"

#include "base/error.h"
#include "base/text/printable.h"
#include "spec/families/family.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

using Entries = std::map<std::string, WeightFolder::Entry, std::less<>>;

/// A stacked tensor, and the parameters of an expert that it has one after the other.
struct Stack {
  std::string_view suffix;
  FileShape shape;
  FileShape of_one;  // of a parameter of one expert
  std::vector<std::string_view> parameters;
};

std::vector<Stack> stacks_of(const ModelSpec& model) {
  const std::int64_t E = model.mixture.num_experts, F = model.mixture.moe_intermediate_size, D = model.hidden_size;
  return {{".experts.gate_up_proj", {E, 2 * F, D}, {F, D}, {"mlp.experts.gate_proj", "mlp.experts.up_proj"}},
          {".experts.down_proj", {E, D, F}, {D, F}, {"mlp.experts.down_proj"}}};
}

/// The tensor of the files, with "{}" for the expert, without the layer.
std::string_view tensor_of(const ModelSpec& model, std::string_view parameter) {
  const std::vector<WeightName>& names = description_of(model.family).weights.of_layer;
  return std::ranges::find(names, parameter, &WeightName::parameter)->tensor;
}

/// "model.layers.0." of "model.layers.0.mlp.experts.down_proj".
std::string layer_of(std::string_view name, std::string_view suffix) {
  name.remove_suffix(suffix.size());
  return std::string(name.substr(0, name.rfind('.') + 1));
}

void unstack(const ModelSpec& model, const Stack& stack, const std::string& name, Entries& entries) {
  const WeightFolder::Entry whole = entries.at(name);
  require(whole.tensor.shape == stack.shape, "{}: tensor '{}' is {}, but config.json makes it {}", whole.path.string(),
          printable(name, 200), to_string(whole.tensor.shape), to_string(stack.shape));
  const std::string layer = layer_of(name, stack.suffix);
  WeightFolder::Entry part = whole;
  part.tensor.shape = stack.of_one;
  part.tensor.num_bytes /= stack.shape[0] * std::ssize(stack.parameters);
  for (std::int64_t expert = 0; expert < stack.shape[0]; ++expert)
    for (const std::string_view parameter : stack.parameters) {
      const std::string tensor = fmt::format(fmt::runtime(tensor_of(model, parameter)), expert);
      const bool is_new = entries.emplace(fmt::format("{}{}.weight", layer, tensor), part).second;
      require(is_new, "{} has an expert twice, in '{}{}.weight' and in '{}' (remove one of them)", whole.path.string(),
              printable(layer, 200), tensor, printable(name, 200));
      part.tensor.first_byte += part.tensor.num_bytes;
    }
  entries.erase(name);
}

}  // namespace

void unstack_experts(const ModelSpec& model, Entries& entries) {
  if (!model.mixture.exists()) return;
  for (const Stack& stack : stacks_of(model)) {
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries)
      if (name.ends_with(stack.suffix)) names.push_back(name);
    for (const std::string& name : names) unstack(model, stack, name, entries);
  }
}

}  // namespace echelon
