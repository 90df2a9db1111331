// GPT-NeoX (arXiv:2204.06745) and Pythia: attention and the MLP read the same input, RoPE turns a part of each head,
// and q, k and v of one head are stored after those of another.
#include "spec/families/family.h"

namespace echelon {

FamilyDescription describe_gpt_neox() {
  ModelSpec fixed;
  fixed.norm = NormKind::layer_norm;
  fixed.mlp = MlpKind::gelu_erf;
  fixed.qkv_bias = true;
  fixed.o_bias = true;
  fixed.mlp_bias = true;
  fixed.use_parallel_residual = true;
  return {
      .model_type = "gpt_neox",
      .architecture = "GPTNeoXForCausalLM",
      .fixed = fixed,
      .fields = with(without(without(without(fields_of_llama(), "rms_norm_eps"), "num_key_value_heads"), "head_dim"),
                     {NumberField{"layer_norm_eps", &ModelSpec::norm_eps, 1e-5}, DropoutField{"hidden_dropout"},
                      FlagField{"use_parallel_residual", {&ModelSpec::use_parallel_residual}},
                      FlagField{"attention_bias", {&ModelSpec::qkv_bias, &ModelSpec::o_bias}}}),
      .rope = {.theta = "rotary_emb_base", .partial = "rotary_pct", .absent_partial = 0.25},
      .weights = {.layers = "gpt_neox.layers.",
                  .base = "gpt_neox.",
                  .of_layer = {{"self_attn.q_proj", "attention.query_key_value", Slot::query_of_heads},
                               {"self_attn.k_proj", "attention.query_key_value", Slot::key_of_heads},
                               {"self_attn.v_proj", "attention.query_key_value", Slot::value_of_heads},
                               {"self_attn.o_proj", "attention.dense"},
                               {"mlp.up_proj", "mlp.dense_h_to_4h"},
                               {"mlp.down_proj", "mlp.dense_4h_to_h"}},
                  .of_model = {{"model.embed_tokens", "gpt_neox.embed_in"},
                               {"model.norm", "gpt_neox.final_layer_norm"},
                               {"lm_head", "embed_out"}}},
  };
}

}  // namespace echelon
