// dots.llm1 (arXiv:2506.05767): DeepSeek-V3's router and shared experts on Qwen3's attention.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_dots1() {
  ModelSpec fixed;
  fixed.norm_eps = 1e-6;
  fixed.qk_norm = true;
  fixed.mixture.scoring_func = RouterScores::sigmoid;
  fixed.mixture.sums_two_of_group = true;
  fixed.mixture.has_bias = true;
  return {
      .model_type = "dots1",
      .architecture = "Dots1ForCausalLM",
      .fixed = fixed,
      .fields = with(fields_of_llama(), {FixedField{"attention_bias", false}}),
      .weights = {.of_layer = {{"mlp.experts.gate_proj", "mlp.experts.{}.gate_proj"},
                               {"mlp.experts.up_proj", "mlp.experts.{}.up_proj"},
                               {"mlp.experts.down_proj", "mlp.experts.{}.down_proj"},
                               {"mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj"},
                               {"mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"},
                               {"mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"}}},
      .mixture =
          MixtureFields{
              .num_experts = "n_routed_experts", .intermediate_size = "moe_intermediate_size", .is_of_deepseek = true},
  };
}

}  // namespace echelon
