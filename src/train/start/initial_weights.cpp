#include "train/start/initial_weights.h"

#include "base/error.h"
#include "checkpoint/hf/adapter/adapter_config.h"
#include "files/file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

namespace echelon {

void require_initial_folder(const RunConfig& config) {
  require(is_folder(config.checkpoint.initial_load_path),
          "checkpoint.initial_load_path = '{}' is not a folder (use that of a model, or a step's)",
          config.checkpoint.initial_load_path);
}

std::optional<ModelReader> initial_weights(const RunConfig& config) {
  if (config.checkpoint.initial_load_path.empty()) return std::nullopt;
  require_initial_folder(config);
  ModelReader reader(config.checkpoint.initial_load_path);
  ModelSpec expected = config.model, found = reader.spec();
  expected.initializer_range = found.initializer_range;  // irrelevant for loaded weights
  require(expected == found,
          "checkpoint.initial_load_path = '{}' has a different model than [model] describes; use model.path = '{}'",
          config.checkpoint.initial_load_path, config.checkpoint.initial_load_path);
  return reader;
}

std::optional<AdapterReader> initial_adapters(const RunConfig& config, const std::optional<Digest>& base) {
  const LoraConfig& lora = config.lora;
  if (lora.initial_load_path.empty()) return std::nullopt;
  require(is_adapter_folder(lora.initial_load_path),
          "lora.initial_load_path = '{}' has no adapter_config.json (use a folder of PEFT)", lora.initial_load_path);
  AdapterReader reader(lora.initial_load_path, config.model);
  const AdapterConfig& found = reader.config();
  const auto require_same = [&](std::string_view key, const auto& wanted, const auto& is) {
    require(wanted == is, "lora.initial_load_path = '{}' has lora.{} = {}, not {} (use {})", lora.initial_load_path,
            key, is, wanted, is);
  };
  require_same("rank", lora.rank, found.lora.rank);
  require_same("alpha", lora.alpha, found.lora.alpha);
  require_same("use_rslora", lora.use_rslora, found.lora.use_rslora);
  const auto modules = [&](const LoraConfig& of) {
    return fmt::format("{}", fmt::join(targets_of(adapted_modules(of, config.model), config.model), ","));
  };
  require_same("target_modules", modules(lora), modules(found.lora));
  if (whole_parameters(config.model, lora) != whole_parameters(config.model, found.lora))
    require_same("modules_to_save", fmt::format("{}", fmt::join(lora.modules_to_save, ",")),
                 fmt::format("{}", fmt::join(found.lora.modules_to_save, ",")));
  require(!found.base_digest || found.base_digest == base,
          "lora.initial_load_path = '{}' has adapters of another base than checkpoint.initial_load_path = '{}' (use "
          "'{}')",
          lora.initial_load_path, config.checkpoint.initial_load_path, found.base);
  return reader;
}

}  // namespace echelon
