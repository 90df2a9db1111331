// How many experts the layers of a model have, and which layers.
#include "checkpoint/hf/config/family_fields.h"

#include <fmt/format.h>

namespace echelon {
namespace {

constexpr std::int64_t max_experts = 8192;

void read_layers(const ConfigFields& config, ModelSpec& model) {
  MixtureSpec& mixture = model.mixture;
  mixture.decoder_sparse_step = config.integer("decoder_sparse_step", max_layers, 1);
  mixture.mlp_only_layers = config.integers("mlp_only_layers");
  for (const std::int64_t layer : mixture.mlp_only_layers)
    if (layer < 0 || layer >= model.num_hidden_layers)
      config.refuse("mlp_only_layers", fmt::format("is not a list of some of the {} layers", model.num_hidden_layers));
}

constexpr std::int64_t max_groups = 32;

constexpr std::string_view topk_methods[] = {"greedy", "group_limited_greedy"};

void read_deepseek(const ConfigFields& config, const MixtureFields& fields, ModelSpec& model) {
  MixtureSpec& mixture = model.mixture;
  mixture.first_k_dense_replace =
      config.integer("first_k_dense_replace", max_layers, fields.absent.first_k_dense_replace, 0);
  mixture.n_group = config.integer("n_group", max_groups, fields.absent.n_group);
  mixture.topk_group = config.integer("topk_group", max_groups, fields.absent.topk_group);
  mixture.routed_scaling_factor = config.number("routed_scaling_factor", fields.absent.routed_scaling_factor);
  mixture.shared_expert_intermediate_size =
      config.integer("n_shared_experts", max_experts) * mixture.moe_intermediate_size;
  (void)config.integer("moe_layer_freq", 1, 1);  // transformers ignores others, but DeepSeek's own code does not
  if (!fields.has_topk_method) return;
  const std::string method = config.text("topk_method", std::string(topk_methods[0]));
  config.require_one_of("topk_method", method, {topk_methods[0], topk_methods[1]});
  if (method == topk_methods[0]) mixture.n_group = mixture.topk_group = 1;
}

void write_deepseek(const MixtureSpec& mixture, nlohmann::ordered_json& config) {
  config["first_k_dense_replace"] = mixture.first_k_dense_replace;
  config["n_group"] = mixture.n_group;
  config["topk_group"] = mixture.topk_group;
  config["routed_scaling_factor"] = mixture.routed_scaling_factor;
  config["n_shared_experts"] = mixture.shared_expert_intermediate_size / mixture.moe_intermediate_size;
}

}  // namespace

void read_mixture(const ConfigFields& config, const MixtureFields& fields, ModelSpec& model) {
  MixtureSpec& mixture = model.mixture;
  const bool is_other = !config.has(fields.num_experts) && config.has(fields.also_num_experts);
  mixture.num_experts = config.integer(is_other ? fields.also_num_experts : fields.num_experts, max_experts);
  mixture.num_experts_per_tok = config.integer("num_experts_per_tok", max_experts);
  mixture.moe_intermediate_size = config.integer(fields.intermediate_size, max_width);
  mixture.norm_topk_prob =
      fields.normalises ? *fields.normalises : config.boolean("norm_topk_prob", fields.absent.norm_topk_prob);
  if (fields.has_dense_layers) read_layers(config, model);
  if (fields.is_of_deepseek) read_deepseek(config, fields, model);
  if (fields.has_gated_shared_expert)
    mixture.shared_expert_intermediate_size = config.integer("shared_expert_intermediate_size", max_width);
}

void write_mixture(const ModelSpec& model, const MixtureFields& fields, nlohmann::ordered_json& config) {
  const MixtureSpec& mixture = model.mixture;
  // transformers 4 knows one of the names, and a file of 5 may have the other.
  if (config.contains(fields.also_num_experts)) config[fields.also_num_experts] = mixture.num_experts;
  config[fields.num_experts] = mixture.num_experts;
  config["num_experts_per_tok"] = mixture.num_experts_per_tok;
  config[fields.intermediate_size] = mixture.moe_intermediate_size;
  if (!fields.normalises) config["norm_topk_prob"] = mixture.norm_topk_prob;
  if (fields.is_of_deepseek) write_deepseek(mixture, config);
  if (fields.has_topk_method) config["topk_method"] = topk_methods[mixture.n_group > 1 ? 1 : 0];
  if (fields.has_gated_shared_expert)
    config["shared_expert_intermediate_size"] = mixture.shared_expert_intermediate_size;
  if (!fields.has_dense_layers) return;
  config["decoder_sparse_step"] = mixture.decoder_sparse_step;
  config["mlp_only_layers"] = mixture.mlp_only_layers;
}

}  // namespace echelon
