#include "spec/config/config_changes.h"

#include "base/error.h"
#include "spec/config/config_value.h"

#include <algorithm>
#include <array>

namespace echelon {
namespace {

/// Of [training]: what changes how a step is computed, not what it computes.
constexpr std::array<std::string_view, 14> keys_of_execution = {
    "training.micro_batch_size", "training.head_chunk_tokens",
    "training.mlp_chunk_tokens", "training.make_vocab_size_divisible_by",
    "training.deterministic",    "training.eval_interval",
    "training.eval_batches",     "training.recompute",
    "training.recompute_method", "training.recompute_num_layers",
    "training.num_threads",      "training.device",
    "training.cuda_graphs",      "training.attention"};

KeyEffect effect_of(const ConfigKey& key, const RunConfig& was, const RunConfig& is) {
  const std::string_view section = section_of(key);
  if (key.name == "model.initializer_range") return KeyEffect::none;
  if (key.name == "lora.initial_load_path") return KeyEffect::none;
  if (section == "model" || section == "lora") return KeyEffect::model;
  if (key.name == "data.path" || key.name == "data.validation_path") return KeyEffect::none;
  if (section == "data" || key.name == "training.seq_len") return KeyEffect::data;
  const bool has_no_decay = was.lr_scheduler.decay == LrDecay::none && is.lr_scheduler.decay == LrDecay::none;
  if (key.name == "training.steps" && has_no_decay) return KeyEffect::none;
  if (section == "training")
    return std::ranges::find(keys_of_execution, key.name) != keys_of_execution.end() ? KeyEffect::none
                                                                                     : KeyEffect::values;
  if (key.name == "moe.freeze_router") return KeyEffect::model;  // its moments are none
  if (section == "moe" && key.name != "moe.dispatch_bound") return KeyEffect::values;
  if (section == "optimizer" || section == "lr_scheduler" || section == "grad_scaler") return KeyEffect::values;
  return KeyEffect::none;
}

}  // namespace

std::vector<KeyChange> config_changes(const RunConfig& was, const RunConfig& is) {
  RunConfig before = was, after = is;  // the table's fields need mutable configs
  std::vector<KeyChange> changes;
  for (const ConfigKey& key : config_keys()) {
    if (!has_value(key)) continue;
    const bool is_scaling = key.name.starts_with("model.rope_scaling.");
    const auto has_it = [&](const RunConfig& config) {
      return (key.applies == nullptr || key.applies(config.model)) && (!is_scaling || config.model.rope_scaling);
    };
    const std::string old_value = has_it(was) ? to_toml(value_of(key, before)) : "nothing",
                      new_value = has_it(is) ? to_toml(value_of(key, after)) : "nothing";
    if (old_value != new_value)
      changes.push_back({std::string(key.name), effect_of(key, was, is), old_value, new_value});
  }
  return changes;
}

std::string to_text(const KeyChange& change) {
  return fmt::format("{}: was {}, is {}", change.key, change.was, change.is);
}

}  // namespace echelon
