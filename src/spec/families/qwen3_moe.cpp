// Qwen3's mixtures of experts (arXiv:2505.09388): its attention, and experts in all layers or some.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_qwen3_moe() {
  ModelSpec fixed;
  fixed.norm_eps = 1e-6;
  fixed.qk_norm = true;
  return {
      .model_type = "qwen3_moe",
      .architecture = "Qwen3MoeForCausalLM",
      .fixed = fixed,
      .fields = with(fields_of_llama(), {FixedField{"attention_bias", false}, FixedField{"use_sliding_window", false}}),
      .weights = {.of_layer = {{"mlp.experts.gate_proj", "mlp.experts.{}.gate_proj"},
                               {"mlp.experts.up_proj", "mlp.experts.{}.up_proj"},
                               {"mlp.experts.down_proj", "mlp.experts.{}.down_proj"}}},
      .mixture = MixtureFields{.num_experts = "num_experts",
                               .intermediate_size = "moe_intermediate_size",
                               .also_num_experts = "num_local_experts",
                               .has_dense_layers = true},
  };
}

}  // namespace echelon
