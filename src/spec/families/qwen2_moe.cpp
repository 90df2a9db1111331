// Qwen1.5-MoE and Qwen2-57B-A14B (arXiv:2407.10671): Qwen2's attention, and a shared expert with a gate of its own.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_qwen2_moe() {
  ModelSpec fixed;
  fixed.norm_eps = 1e-6;
  fixed.qkv_bias = true;
  fixed.mixture.gates_shared_expert = true;
  return {
      .model_type = "qwen2_moe",
      .architecture = "Qwen2MoeForCausalLM",
      .fixed = fixed,
      .fields = with(fields_of_llama(),
                     {FlagField{"qkv_bias", {&ModelSpec::qkv_bias}}, FixedField{"use_sliding_window", false}}),
      .weights = {.of_layer = {{"mlp.experts.gate_proj", "mlp.experts.{}.gate_proj"},
                               {"mlp.experts.up_proj", "mlp.experts.{}.up_proj"},
                               {"mlp.experts.down_proj", "mlp.experts.{}.down_proj"}}},
      .mixture = MixtureFields{.num_experts = "num_experts",
                               .intermediate_size = "moe_intermediate_size",
                               .also_num_experts = "num_local_experts",
                               .has_dense_layers = true,
                               .has_gated_shared_expert = true},
  };
}

}  // namespace echelon
