// DeepSeek-V2 (arXiv:2405.04434) and DeepSeek-V3 (arXiv:2412.19437): multi-head latent attention, and routers that
// choose groups of experts first.
#include "spec/families/family.h"

namespace echelon {
namespace {

FamilyDescription describe_deepseek(ModelSpec fixed, std::vector<FamilyField> fields) {
  fixed.norm_eps = 1e-6;
  return {
      .model_type = {},
      .architecture = {},
      .fixed = std::move(fixed),
      .fields = with(without(fields_of_llama(), "head_dim"), fields),
      .weights = {.of_layer = {{"self_attn.q_proj", "self_attn.q_proj", Slot::rotary_query},
                               {"self_attn.q_b_proj", "self_attn.q_b_proj", Slot::rotary_query},
                               {"self_attn.kv_a_proj", "self_attn.kv_a_proj_with_mqa", Slot::latent},
                               {"self_attn.k_rope_proj", "self_attn.kv_a_proj_with_mqa", Slot::rotary_key},
                               {"mlp.experts.gate_proj", "mlp.experts.{}.gate_proj"},
                               {"mlp.experts.up_proj", "mlp.experts.{}.up_proj"},
                               {"mlp.experts.down_proj", "mlp.experts.{}.down_proj"},
                               {"mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj"},
                               {"mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"},
                               {"mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"}}},
      .mixture =
          MixtureFields{
              .num_experts = "n_routed_experts", .intermediate_size = "moe_intermediate_size", .is_of_deepseek = true},
      .has_latents = true,
  };
}

}  // namespace

FamilyDescription describe_deepseek_v2() {
  FamilyDescription family = describe_deepseek(
      {}, {FixedField{"attention_bias", false}, FixedField{"mlp_bias", false}, FixedField{"norm_topk_prob", false},
           FixedField{"scoring_func", name_of(RouterScores::softmax)}});
  family.model_type = "deepseek_v2";
  family.architecture = "DeepseekV2ForCausalLM";
  family.mixture->normalises = false;
  family.mixture->has_topk_method = true;
  return family;
}

FamilyDescription describe_deepseek_v3() {
  ModelSpec fixed;
  fixed.mixture.scoring_func = RouterScores::sigmoid;
  fixed.mixture.sums_two_of_group = true;
  fixed.mixture.has_bias = true;
  FamilyDescription family = describe_deepseek(
      fixed, {FixedField{"attention_bias", false}, FixedField{"scoring_func", name_of(RouterScores::sigmoid)},
              FixedField{"topk_method", "noaux_tc"}, FlagField{"rope_interleave", {&ModelSpec::rope_interleave}}});
  family.model_type = "deepseek_v3";
  family.architecture = "DeepseekV3ForCausalLM";
  family.mixture->absent = {
      .norm_topk_prob = true, .routed_scaling_factor = 2.5, .n_group = 8, .topk_group = 4, .first_k_dense_replace = 3};
  return family;
}

}  // namespace echelon
