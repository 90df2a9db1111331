// Low-rank adapters (Hu et al. 2021, arXiv:2106.09685): which linear layers have one, and what is trained with them.
// Keys and names are those of PEFT's adapter_config.json.
#pragma once

#include "spec/model_spec.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

struct LoraConfig {
  std::int64_t rank = 0;  // 0: no adapters, and all weights are trained
  double alpha = 16;
  double dropout = 0;
  // As the model's files name them: the last part, or more where that is not enough.
  std::vector<std::string> target_modules = {"all-linear"};
  bool use_rslora = false;
  std::string initial_load_path = {};             // PEFT's folder with the first adapters; empty: they are drawn
  std::vector<std::string> modules_to_save = {};  // trained whole, next to the adapters (saved_modules.h)
  bool operator==(const LoraConfig&) const = default;

  [[nodiscard]] bool exists() const { return rank > 0; }
  /// Of the product of an adapter: alpha / rank, or alpha / sqrt(rank) (Kalajdzievski 2023, arXiv:2312.03732).
  [[nodiscard]] double scale() const;
};

/// The modules of linear layers that have adapters.
[[nodiscard]] std::vector<std::string_view> adapted_modules(const LoraConfig& lora, const ModelSpec& model);
/// Names for target_modules that name exactly these, each once.
[[nodiscard]] std::vector<std::string> names_of(const std::vector<std::string_view>& modules, const ModelSpec& model);
/// The same, or 'all-linear'.
[[nodiscard]] std::vector<std::string> targets_of(const std::vector<std::string_view>& modules, const ModelSpec& model);

/// "self_attn.q_proj" of "model.layers.3.self_attn.q_proj".
[[nodiscard]] std::string_view layer_of(std::string_view name);
/// Whether a layer is linear and has an adapter.
[[nodiscard]] bool has_adapter(const LoraConfig& lora, const ModelSpec& model, std::string_view layer);
/// Whether a parameter is trained: without adapters all are.
[[nodiscard]] bool is_trained(const LoraConfig& lora, const ModelSpec& model, std::string_view parameter);
/// Whether it is the A or the B of an adapter.
[[nodiscard]] bool is_of_adapter(std::string_view parameter);

/// Throws Error with the key, the value and a valid one.
void validate(const LoraConfig& lora, const ModelSpec& model);

}  // namespace echelon
