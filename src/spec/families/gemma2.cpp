// Gemma 2 (arXiv:2408.00118): norms before and after the branches with gains of 1 + weight, a scaled embedding, soft
// caps, and a window in every other layer.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_gemma2() {
  ModelSpec fixed;
  fixed.norm_eps = 1e-6;
  fixed.tie_word_embeddings = true;
  fixed.mlp = MlpKind::geglu;
  fixed.norm_placement = NormPlacement::both;
  fixed.norm_adds_one = true;
  fixed.rounds_embedding_multiplier = true;
  fixed.query_pre_attn_scalar = 256;
  fixed.attn_logit_softcapping = 50;
  fixed.final_logit_softcapping = 30;
  return {
      .model_type = "gemma2",
      .architecture = "Gemma2ForCausalLM",
      .fixed = fixed,
      .fields = with(
          without(fields_of_llama(), "hidden_act"),
          {IntegerField{"head_dim", &ModelSpec::head_dim, max_heads, always<256>}, ActivationField{"hidden_activation"},
           FlagField{"attention_bias", {&ModelSpec::qkv_bias, &ModelSpec::o_bias}},
           NumberField{"query_pre_attn_scalar", &ModelSpec::query_pre_attn_scalar, 256.0, NumberKind::whole},
           CapField{"attn_logit_softcapping", &ModelSpec::attn_logit_softcapping, 50.0},
           CapField{"final_logit_softcapping", &ModelSpec::final_logit_softcapping, 30.0}}),
      .windows = WindowFields::of_layers,
      .absent_window = 4096,
      .absent_window_pattern = 2,
      .multiplies_embedding_by_root_of_width = true,
  };
}

}  // namespace echelon
