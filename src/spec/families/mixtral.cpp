// Mixtral (Jiang et al. 2024, arXiv:2401.04088): Mistral with a mixture of experts in every layer. The weights of a
// token's experts add up to 1; config.json has no key for that.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_mixtral() {
  ModelSpec fixed;
  fixed.mixture.norm_topk_prob = true;
  return {
      .model_type = "mixtral",
      .architecture = "MixtralForCausalLM",
      .fixed = fixed,
      .fields = with(fields_of_llama(), {NumberField{"rms_norm_eps", &ModelSpec::norm_eps, 1e-5}}),
      .windows = WindowFields::everywhere,
      .weights = {.of_layer = {{"mlp.gate", "block_sparse_moe.gate"},
                               {"mlp.experts.gate_proj", "block_sparse_moe.experts.{}.w1"},
                               {"mlp.experts.up_proj", "block_sparse_moe.experts.{}.w3"},
                               {"mlp.experts.down_proj", "block_sparse_moe.experts.{}.w2"}}},
      .mixture =
          MixtureFields{
              .num_experts = "num_local_experts", .intermediate_size = "intermediate_size", .normalises = true},
  };
}

}  // namespace echelon
