// OLMoE (arXiv:2409.02060): a mixture of experts in every layer, and q and k normalized over all heads together.
// Some models limit q, k and v.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_olmoe() {
  ModelSpec fixed;
  fixed.qk_norm = true;
  fixed.qk_norm_of_projection = true;
  return {
      .model_type = "olmoe",
      .architecture = "OlmoeForCausalLM",
      .fixed = fixed,
      .fields = with(fields_of_llama(), {NumberField{"rms_norm_eps", &ModelSpec::norm_eps, 1e-5},
                                         CapField{"clip_qkv", &ModelSpec::clip_qkv, 0.0},
                                         FlagField{"attention_bias", {&ModelSpec::qkv_bias, &ModelSpec::o_bias}}}),
      .weights = {.of_layer = {{"mlp.experts.gate_proj", "mlp.experts.{}.gate_proj"},
                               {"mlp.experts.up_proj", "mlp.experts.{}.up_proj"},
                               {"mlp.experts.down_proj", "mlp.experts.{}.down_proj"}}},
      .mixture = MixtureFields{.num_experts = "num_experts",
                               .intermediate_size = "intermediate_size",
                               .also_num_experts = "num_local_experts"},
  };
}

}  // namespace echelon
