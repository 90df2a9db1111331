#include "verify/mixture_layout.h"

#include "data/masked_batches.h"

namespace echelon::testing {

RunConfig mixture_config(const MixtureLayout& layout) {
  RunConfig config;
  ModelSpec& model = config.model;
  model = family_defaults(layout.family);
  model.num_attention_heads = 4;
  model.num_key_value_heads = 2;
  model.head_dim = 4;
  model.hidden_size = 16;
  model.num_hidden_layers = 2 * layout.pp;
  model.intermediate_size = 27;
  model.vocab_size = 41;
  model.max_position_embeddings = 32;
  model.initializer_range = 0.15;
  model.mixture.num_experts = 4;
  model.mixture.num_experts_per_tok = 2;
  model.mixture.moe_intermediate_size = 12;
  if (layout.family != Family::mixtral) model.mixture.shared_expert_intermediate_size = 12;
  config.training.steps = 3;
  config.training.seq_len = 16;
  config.training.micro_batch_size = layout.sequences;
  config.training.global_batch_size = layout.microbatches * layout.sequences * layout.shard;
  config.training.dtype = DType::float64;
  config.training.recompute = layout.recompute;
  config.optimizer.lr = 1e-2;
  config.optimizer.eps = 1e-7;
  config.parallelism.data_parallel_shard_degree = layout.shard;
  config.parallelism.tensor_parallel_degree = layout.tp;
  config.parallelism.sequence_parallel = layout.sequence_parallel;
  config.parallelism.expert_parallel_degree = layout.ep;
  config.parallelism.expert_tensor_parallel_degree = layout.etp;
  config.parallelism.context_parallel_degree = layout.cp;
  config.parallelism.pipeline_parallel_degree = layout.pp;
  config.parallelism.pipeline_parallel_schedule = layout.schedule;
  config.moe.dispatch_bound = layout.bound;
  if (layout.losses) config.moe = {.seq_aux_loss_coeff = 0.2, .global_aux_loss_coeff = 0.3, .z_loss_coeff = 0.05};
  if (layout.capacity > 0) {
    config.moe.capacity_factor = layout.capacity;
    config.moe.capacity_order = CapacityOrder::score;
  }
  if (model.mixture.has_bias) config.moe.bias_update_rate = 0.02;
  return config;
}

Verdict verdict_on(const MixtureLayout& layout, const Interpose& interpose, const Interpose& of_one_rank) {
  const RunConfig config = mixture_config(layout);
  const FormulaTokens tokens(1, config.model.vocab_size);
  const UnevenTargets batches(tokens, 1);
  return verify(config, batches, {.interpose = interpose, .interpose_reference = of_one_rank});
}

}  // namespace echelon::testing
