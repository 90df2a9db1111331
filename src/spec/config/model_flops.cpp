#include "spec/config/model_flops.h"

#include "spec/lora/lora_parameters.h"

namespace echelon {
namespace {

std::int64_t num_in(const std::vector<NamedShape>& parameters) {
  std::int64_t sum = 0;
  for (const NamedShape& each : parameters) sum += each.sizes.num_elements();
  return sum;
}

/// Rows are looked up, and not multiplied.
bool is_table(const ModelSpec& model, std::string_view parameter) {
  return parameter == "model.embed_positions.weight" ||
         (parameter == "model.embed_tokens.weight" && !model.tie_word_embeddings);
}

/// Of those that a token uses.
std::int64_t num_active(const ModelSpec& model, const std::vector<NamedShape>& parameters) {
  const MixtureSpec& mixture = model.mixture;
  std::int64_t sum = 0;
  for (const NamedShape& each : parameters) {
    const bool is_stack = each.sizes.num_dims() == 3;
    sum += is_stack ? each.sizes.num_elements() / mixture.num_experts * mixture.num_experts_per_tok
                    : each.sizes.num_elements();
  }
  return sum;
}

std::int64_t num_frozen(const RunConfig& config) {
  const ModelSpec& model = config.model;
  const std::int64_t in_routers =
      model.mixture.num_layers_of(model.num_hidden_layers) * model.mixture.num_experts * model.hidden_size;
  if (!config.lora.exists()) return config.moe.freeze_router ? in_routers : 0;
  std::vector<NamedShape> frozen = global_parameters(model);
  std::erase_if(frozen, [&](const NamedShape& parameter) {
    return is_trained(config.lora, model, parameter.name) || is_table(model, parameter.name);
  });
  return num_active(model, frozen);
}

}  // namespace

double model_flops_of_step(const RunConfig& config, double pairs_share) {
  const TrainingConfig& training = config.training;
  const double per_token =
      model_flops_per_token(config) - (1 - pairs_share) * attention_flops_per_token(config.model, training.seq_len);
  return per_token * static_cast<double>(training.global_batch_size * training.seq_len);
}

double model_flops_per_token(const RunConfig& config) {
  const std::int64_t num_in_adapters = config.lora.exists() ? num_in(adapter_parameters(config.model, config.lora)) : 0;
  return model_flops_per_token(config.model, config.training.seq_len) - 2.0 * static_cast<double>(num_frozen(config)) +
         6.0 * static_cast<double>(num_in_adapters);
}

}  // namespace echelon
